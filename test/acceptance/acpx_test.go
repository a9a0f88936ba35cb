//go:build acceptance

package acceptance

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// acpx is the client with sessions that outlive its own processes, and those of dsh.
type acpx struct {
	t    *testing.T
	home home
}

// run runs one command of acpx.
func (x acpx) run(args ...string) process {
	x.t.Helper()
	return execute(x.t, x.home, 2*time.Minute, x.argv(args...)...)
}

func (x acpx) argv(args ...string) []string {
	return append([]string{"node", "node_modules/.bin/acpx", "--approve-all", "--cwd", x.home.work, "--agent", dsh + " run -c " + config}, args...)
}

// expect runs one command and checks what it prints.
func (x acpx) expect(want string, args ...string) string {
	x.t.Helper()
	p := x.run(args...)
	if p.err != nil || !bytes.Contains(p.stdout, []byte(want)) {
		x.t.Fatalf("acpx %q: %v, want %q in\n%s\n--- stderr\n%s", args, p.err, want, p.stdout, tail(p.stderr, 40))
	}
	return string(p.stdout)
}

// killHost kills the dsh that acpx has started, as a crash would. It fails the test when there is none.
func (x acpx) killHost() {
	x.t.Helper()
	killed := 0
	for _, line := range x.home.processes() {
		pid, command, _ := strings.Cut(line, " ")
		if number, err := strconv.Atoi(pid); err == nil && strings.HasPrefix(command, dsh+" run ") {
			killed++
			if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
				x.t.Fatalf("kill dsh: %v", err)
			}
		}
	}
	if killed != 1 {
		x.t.Fatalf("%d processes of dsh to kill, in\n%s", killed, strings.Join(x.home.processes(), "\n"))
	}
}

// begin starts a prompt that makes a file when its command runs, and waits for that. It returns what waits for the prompt's end.
func (x acpx) begin() (end func() process) {
	x.t.Helper()
	begun := filepath.Join(x.home.work, "begun")
	_ = os.Remove(begun)
	over := make(chan process, 1)
	go func() { over <- execute(x.t, x.home, 2*time.Minute, x.argv("prompt", "touch begun; sleep 60")...) }()
	ctx, cancel := context.WithTimeout(x.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(begun); err == nil {
			return func() process { return <-over }
		}
		select {
		case <-tick.C:
		case p := <-over:
			x.t.Fatalf("the prompt ended before its command began: %v\n%s%s", p.err, p.stdout, p.stderr)
		case <-ctx.Done():
			x.t.Fatal("the command did not begin")
		}
	}
}

// TestAcpxSessions has one session go on through everything that can happen to the program behind it.
func TestAcpxSessions(t *testing.T) {
	x := acpx{t, newHome(t)}
	id := strings.TrimSpace(x.expect("-", "sessions", "new"))
	x.expect("first-2", "prompt", "echo first-$((1 + 1))")
	x.same(id)

	x.killHost()
	x.expect("second-4", "prompt", "echo second-$((2 + 2))")
	x.same(id)

	end := x.begin()
	x.killHost()
	if p := end(); p.err == nil {
		t.Errorf("a prompt whose agent was killed ended well:\n%s", p.stdout)
	}
	x.expect("third-6", "prompt", "echo third-$((3 + 3))")
	x.same(id)

	end = x.begin()
	x.expect("cancel requested", "cancel")
	if p := end(); !bytes.Contains(p.stdout, []byte("[done] cancelled")) {
		t.Errorf("a cancelled prompt: %v\n%s\n--- stderr\n%s", p.err, p.stdout, tail(p.stderr, 20))
	}
	x.expect("fourth-8", "prompt", "echo fourth-$((4 + 4))")

	listed := x.expect(id, "sessions", "list")
	if lines := strings.Split(strings.TrimSpace(listed), "\n"); len(lines) != 1 || !strings.Contains(listed, "echo first") {
		t.Errorf("sessions are listed as\n%s", listed)
	}
	x.expect("", "sessions", "close")
	x.home.expectNobody(t)
}

// same checks that the session is the one that it was.
func (x acpx) same(id string) {
	x.t.Helper()
	x.expect("session: "+id+"\n", "status")
}
