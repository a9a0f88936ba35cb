package cases

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// signalsOf notes what signals a process sends, until the function that it returns is called: that gives them, one in a line.
func signalsOf(t *testing.T, pid int) (stop func() string) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil { // the tests ask for nothing but Go; .ci/run installs it
		t.Skip("strace is not installed")
	}
	file := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-e", "trace=kill,tkill,pidfd_send_signal", "-o", file, "-p", fmt.Sprint(pid))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(stderr)
	for attached := false; !attached; {
		if !said.Scan() { // containers without CAP_SYS_PTRACE, and systems whose Yama forbids it, cannot show this
			_ = cmd.Wait()
			t.Skip("this system lets nobody trace: " + said.Text())
		}
		attached = strings.Contains(said.Text(), "attached")
	}
	return func() string {
		_ = cmd.Process.Signal(syscall.SIGINT)
		for said.Scan() {
		}
		_ = cmd.Wait()
		trace, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(trace)
	}
}

// The number of a group that is empty may be another's by now.
func TestAGroupThatIsEmptyIsNotSignalled(t *testing.T) {
	e := newHome(t, configuration{}).start()
	session := e.session(e.h.work())
	stop := signalsOf(t, e.plugin("bash-local"))
	expect(t, e.prompt(session, background("exit 3")), "started background task bash-1")
	e.until(session, "bash-1", "[status: completed, exit code: 3]")
	expect(t, e.prompt(session, kill("bash-1"), output("bash-1"), run("true")),
		"task bash-1 had already finished", "(no new output)\n[status: completed, exit code: 3]", "(no output)")
	if trace := stop(); strings.Contains(trace, "SIGTERM") || strings.Contains(trace, "SIGKILL") {
		t.Errorf("the executor sent:\n%s", trace)
	}

	stop = signalsOf(t, e.plugin("bash-local"))
	expect(t, e.prompt(session, background("sleep 1000"), kill("bash-2")), "started background task bash-2", "killed background task bash-2")
	e.until(session, "bash-2", "[status: killed by SIGTERM]")
	if trace := stop(); !strings.Contains(trace, "SIGTERM") {
		t.Errorf("a kill is not seen, so the test is worth nothing:\n%s", trace)
	}
}

// holdings are what a process has: descriptors, threads, and children that nobody has waited for.
func holdings(t *testing.T, pid int) (descriptors, threads, zombies int) {
	t.Helper()
	count := func(dir string) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, dir))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	for _, child := range childrenOf(pid) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "Z") {
			zombies++
		}
	}
	return count("fd"), count("task"), zombies
}

func TestTasksAndReloadsLeaveNothingBehind(t *testing.T) {
	const tasks, reloads, more = 300, 20, 10
	e := newHome(t, configuration{}).start()
	session := e.session(e.h.work())
	// grown waits until a process holds no more than before, and a bit.
	grown := func(name string, pid, descriptors, threads int) {
		t.Helper()
		var d, n, zombies int
		defer func() {
			t.Logf("%s: %d descriptors, were %d; %d threads, were %d; %d zombies", name, d, descriptors, n, threads, zombies)
		}()
		eventually(t, fmt.Sprintf("%s holds as much as before: %d descriptors, %d threads", name, descriptors, threads), func() bool {
			d, n, zombies = holdings(t, pid)
			return d <= descriptors+more && n <= threads+more && zombies == 0
		})
	}
	host := e.cmd.Process.Pid
	// alone waits until the executors that were replaced have gone.
	alone := func() {
		eventually(t, "one executor is left", func() bool {
			n := 0
			for _, pid := range childrenOf(host) {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if strings.HasSuffix(string(line), "\x00bash-local\x00") {
					n++
				}
			}
			return n == 1
		})
	}
	e.prompt(session, run("true"), background("true"))
	for range reloads { // the runtime keeps what it once needed at the same time
		e.reload("bash")
	}
	alone()
	hostDescriptors, hostThreads, _ := holdings(t, host)

	executor := e.plugin("bash-local")
	descriptors, threads, _ := holdings(t, executor)
	calls := make([]call, tasks)
	for i := range calls {
		calls[i] = background("(sleep .1 &); true")
	}
	e.prompt(session, calls...)
	grown("the executor after its tasks", executor, descriptors, threads)

	for range reloads {
		e.reload("bash")
	}
	alone()
	grown("the host after the reloads", host, hostDescriptors, hostThreads)
	expect(t, e.prompt(session, output("bash-300"), output("bash-301"), output("bash-302"), kill("bash-2")),
		"(no new output)\n[status: completed, exit code: 0]", "(no new output)\n[status: completed, exit code: 0]",
		`Error: unknown bash task "bash-302"`, "task bash-2 had already finished")
}
