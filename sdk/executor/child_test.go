package executor_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

const (
	envChildCommand = "TEST_EXECUTOR_COMMAND"
	envChildLimit   = "TEST_EXECUTOR_LIMIT"
)

// TestMain is also an executor of its own process, for tests that stop or kill one.
func TestMain(m *testing.M) {
	if command := os.Getenv(envChildCommand); command != "" {
		serveChild(command)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func serveChild(command string) {
	limit, err := time.ParseDuration(os.Getenv(envChildLimit))
	if err != nil {
		panic(err)
	}
	t := &childTB{}
	f := start(t, executor.Options{})
	fmt.Println("started")
	r := f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: command}, TimeoutMs: limit.Milliseconds()})
	data := r.GetStdout().GetData()
	fmt.Printf("result %q timed out: %v\n", data[max(0, len(data)-10):], r.GetTimedOut())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// childTB is what a child has for a test.
type childTB struct{ testing.TB }

func (*childTB) Helper()                  {}
func (*childTB) Cleanup(func())           {}
func (*childTB) Context() context.Context { return context.Background() }
func (*childTB) Output() io.Writer        { return os.Stderr }
func (*childTB) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (*childTB) Fatalf(f string, args ...any) {
	panic(fmt.Sprintf(f, args...))
}

// child is an executor in a process of its own that runs one command.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startChild(t *testing.T, command string, limit time.Duration) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), envChildCommand+"="+command, envChildLimit+"="+limit.String())
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) signal(sig syscall.Signal) error { return syscall.Kill(c.pid(), sig) }

// kill kills the executor and nothing else.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// waitFor reads what the child says up to a line that begins so.
func (c *child) waitFor(t *testing.T, line string) {
	t.Helper()
	for c.lines.Scan() {
		if strings.HasPrefix(c.lines.Text(), line) {
			return
		}
		if strings.HasPrefix(c.lines.Text(), "result") {
			t.Fatalf("got %q, want %q", c.lines.Text(), line)
		}
	}
	t.Fatalf("the child ended without saying %q", line)
}
