package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// output is what dsh prints, and can be closed as by a client that is gone.
type output struct {
	*bufio.Reader
	io.Closer
}

// startDsh runs this test program as dsh, with a state of its own.
func startDsh(t *testing.T, state string, args ...string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout output) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "RUN_DSH=1", "GORACE="+raceOptions, "XDG_STATE_HOME="+state)
	cmd.Stderr = t.Output()
	if stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, stdin, output{bufio.NewReader(out), out}
}

// processes are the ids of the processes whose command line has all the words.
func processes(words ...string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, file := range files {
		line, _ := os.ReadFile(file)
		text := string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants are all processes below one.
func descendants(pid int) []int {
	var all []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		list, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(list)) {
			child, _ := strconv.Atoi(field)
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

func alive(pid int) bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(state), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// within waits for what other processes bring about.
func within(t *testing.T, limit time.Duration, what string, true func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !true() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"terminal_output":true}}}}` + "\n"

// runCommand starts dsh run and has a session of it run a command.
func runCommand(t *testing.T, state, command string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout output) {
	t.Helper()
	cmd, stdin, stdout = startDsh(t, state, "run")
	fmt.Fprint(stdin, initialize)
	fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`+"\n", t.TempDir())
	var session string
	for session == "" {
		line, err := stdout.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, ok := strings.Cut(line, `"sessionId":"`); ok {
			session, _, _ = strings.Cut(rest, `"`)
		}
	}
	fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}}`+"\n",
		session, command)
	return cmd, stdin, stdout
}

// Commands of these tests sleep odd times, so that they can be told apart.
func TestNothingIsLeftWhenTheHostDies(t *testing.T) {
	for number, test := range []struct {
		name    string
		command string
		end     func(cmd *exec.Cmd, stdin, stdout io.Closer) error
		limit   time.Duration
		orderly bool // the turn is ended and its end is stored
	}{
		{"SIGKILL of the host", "sleep %s", sigkill, 5 * time.Second, false},
		{"SIGKILL of the host, a pipeline below a shell", "(sleep %s; true) | cat; true", sigkill, 5 * time.Second, false},
		{"SIGKILL of the host, a command that moved away", "setsid sleep %s & (setsid setsid sleep %[1]s & ) ; sleep %[1]s; true", sigkill, 5 * time.Second, false},
		{"SIGKILL of the host, a command that ignores SIGTERM", "trap '' TERM; sleep %s; true", sigkill, 5 * time.Second, false},
		{"SIGTERM", "sleep %s; true", terminate(syscall.SIGTERM), 2 * time.Second, true},
		{"SIGHUP", "sleep %s; true", terminate(syscall.SIGHUP), 2 * time.Second, true},
		{"SIGINT", "sleep %s; true", terminate(syscall.SIGINT), 2 * time.Second, true},
		{"end of input", "sleep %s; true", func(_ *exec.Cmd, stdin, _ io.Closer) error { return stdin.Close() }, 2 * time.Second, true},
		{"SIGTERM, a command that ignores it", "trap '' TERM; sleep %s; true", terminate(syscall.SIGTERM), 2 * time.Second, true},
		{"two SIGTERMs", "trap '' TERM; sleep %s; true", func(cmd *exec.Cmd, _, _ io.Closer) error {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return cmd.Process.Signal(syscall.SIGTERM)
		}, 2 * time.Second, false},
		// Stdin stays open: what the command prints is the only thing by which dsh can notice.
		{"the client reads no more", "while :; do echo x; sleep .1; done & sleep %s", func(_ *exec.Cmd, _, stdout io.Closer) error {
			return stdout.Close()
		}, 5 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			seconds, state := strconv.Itoa(31000+number), t.TempDir()
			cmd, stdin, stdout := runCommand(t, state, fmt.Sprintf(test.command, seconds))
			within(t, 10*time.Second, "the command runs", func() bool { return len(processes("sleep", seconds)) > 0 })
			below := descendants(cmd.Process.Pid)
			if len(below) < 6 {
				t.Fatalf("the host has only %d descendants", len(below))
			}
			if err := test.end(cmd, stdin, stdout); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, stdout)
			within(t, test.limit, "the host is gone", func() bool {
				var status syscall.WaitStatus
				pid, _ := syscall.Wait4(cmd.Process.Pid, &status, syscall.WNOHANG, nil)
				return pid != 0
			})
			within(t, test.limit, "all plugins and commands are gone", func() bool {
				return len(processes("sleep", seconds)) == 0 && !slices.ContainsFunc(below, alive)
			})
			if last := lastEvent(t, state); test.orderly && !strings.Contains(last, `"type":"turn/end"`) {
				t.Errorf("the session's log ends with %q", last)
			}
		})
	}
}

// lastEvent is the last line of the log of the only session.
func lastEvent(t *testing.T, state string) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(state, "dsh", "sessions", "*.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs of sessions: %q, %v", logs, err)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.TrimSuffix(string(text), "\n")
	return whole[strings.LastIndex(whole, "\n")+1:]
}

func sigkill(cmd *exec.Cmd, _, _ io.Closer) error { return cmd.Process.Kill() }

func terminate(signal syscall.Signal) func(*exec.Cmd, io.Closer, io.Closer) error {
	return func(cmd *exec.Cmd, _, _ io.Closer) error { return cmd.Process.Signal(signal) }
}
