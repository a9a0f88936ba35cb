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

// startDsh runs this test program as dsh. marker is an argument that only its own commands carry.
func startDsh(t *testing.T, args ...string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "RUN_DSH=1", "GORACE="+raceOptions, "XDG_STATE_HOME="+t.TempDir())
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
	return cmd, stdin, bufio.NewReader(out)
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

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}` + "\n"

// runCommand starts dsh run and has a session of it run a command.
func runCommand(t *testing.T, command string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout *bufio.Reader) {
	t.Helper()
	cmd, stdin, stdout = startDsh(t, "run")
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
		end     func(cmd *exec.Cmd, stdin io.Closer) error
		limit   time.Duration
	}{
		{"SIGKILL of the host", "sleep %s", sigkill, 5 * time.Second},
		{"SIGKILL of the host, a pipeline below a shell", "(sleep %s; true) | cat; true", sigkill, 5 * time.Second},
		{"SIGKILL of the host, a command that moved away", "setsid sleep %s & (setsid setsid sleep %[1]s & ) ; sleep %[1]s; true", sigkill, 5 * time.Second},
		{"SIGKILL of the host, a command that ignores SIGTERM", "trap '' TERM; sleep %s; true", sigkill, 5 * time.Second},
		{"SIGTERM", "sleep %s; true", terminate(syscall.SIGTERM), 2 * time.Second},
		{"SIGHUP", "sleep %s; true", terminate(syscall.SIGHUP), 2 * time.Second},
		{"SIGINT", "sleep %s; true", terminate(syscall.SIGINT), 2 * time.Second},
		{"end of input", "sleep %s; true", func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() }, 2 * time.Second},
		{"SIGTERM, a command that ignores it", "trap '' TERM; sleep %s; true", terminate(syscall.SIGTERM), 2 * time.Second},
		{"two SIGTERMs", "trap '' TERM; sleep %s; true", func(cmd *exec.Cmd, _ io.Closer) error {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return cmd.Process.Signal(syscall.SIGTERM)
		}, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			seconds := strconv.Itoa(31000 + number)
			cmd, stdin, stdout := runCommand(t, fmt.Sprintf(test.command, seconds))
			within(t, 10*time.Second, "the command runs", func() bool { return len(processes("sleep", seconds)) > 0 })
			below := descendants(cmd.Process.Pid)
			if len(below) < 6 {
				t.Fatalf("the host has only %d descendants", len(below))
			}
			if err := test.end(cmd, stdin); err != nil {
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
		})
	}
}

func sigkill(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() }

func terminate(signal syscall.Signal) func(*exec.Cmd, io.Closer) error {
	return func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(signal) }
}
