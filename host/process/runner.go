package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/dsh-go/dsh/sdk/api"
)

const (
	// stderrKept is how much of a process's stderr its crash report can show.
	stderrKept = 16 << 10
	// reportLines is how many of the last lines it shows.
	reportLines = 5
	// drainTime is how long the pipes of a dead process are read on: a grandchild that holds them must not hide the death.
	drainTime = 50 * time.Millisecond
)

// processRunner starts a program for go-plugin: in a process group of its own, without stdin, with an explicit environment, bound
// to the life of this process.
type processRunner struct {
	cmd            *exec.Cmd
	stdout, stderr *os.File // our ends
	errors         *tail
	log            hclog.Logger
	liveness       *os.File      // our end; the process sees the other one end when we are gone
	done           chan struct{} // closed when the process has ended
	drained        chan struct{} // closed when its stderr has been read to the end, or given up
	state          *os.ProcessState

	mu     sync.Mutex
	pid    int  // 0: not started
	killed bool // before it was started
}

func newRunner(spec Spec) *processRunner {
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Env = append(append([]string{}, spec.Env...), api.EnvHostPID+"="+strconv.Itoa(os.Getpid()), api.EnvLivenessFD+"=3")
	cmd.SysProcAttr = childAttributes()
	return &processRunner{cmd: cmd, errors: &tail{limit: stderrKept}, log: spec.Log, done: make(chan struct{}), drained: make(chan struct{})}
}

// Start implements runner.Runner.
func (r *processRunner) Start(context.Context) (err error) {
	var opened []*os.File
	defer func() {
		if err != nil {
			for _, f := range opened {
				f.Close()
			}
			close(r.done)
			close(r.drained)
		}
	}()
	pipe := func() (ours, theirs *os.File) {
		if err != nil {
			return nil, nil
		}
		if ours, theirs, err = os.Pipe(); err == nil {
			opened = append(opened, ours, theirs)
		}
		return ours, theirs
	}
	stdout, childStdout := pipe()
	stderr, childStderr := pipe()
	childLiveness, liveness := pipe()
	if err != nil {
		return fmt.Errorf("make pipes: %w", err)
	}
	r.stdout, r.stderr, r.liveness = stdout, stderr, liveness
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.ExtraFiles = childStdout, childStderr, []*os.File{childLiveness}
	if err = startOnKeptThread(r.cmd); err != nil {
		return err
	}
	childStdout.Close()
	childStderr.Close()
	childLiveness.Close()
	r.mu.Lock()
	r.pid = r.cmd.Process.Pid
	killed := r.killed
	r.mu.Unlock()
	go r.wait()
	if killed {
		r.killGroup()
	}
	return nil
}

// wait reaps the process. go-plugin stops reading, and notices the end, when both pipes end; a grandchild may hold them open.
func (r *processRunner) wait() {
	r.state, _ = r.cmd.Process.Wait()
	deadline := time.Now().Add(drainTime)
	_ = r.stdout.SetReadDeadline(deadline)
	_ = r.stderr.SetReadDeadline(deadline)
	r.liveness.Close()
	close(r.done)
}

// Wait implements runner.Runner.
func (r *processRunner) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill implements runner.Runner.
func (r *processRunner) Kill(context.Context) error {
	r.killGroup()
	return nil
}

// killGroup kills the process and its group. The process is a zombie, and its id its own, until wait has reaped it.
func (r *processRunner) killGroup() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if r.pid != 0 && !r.exited() {
		_ = syscall.Kill(-r.pid, syscall.SIGKILL)
	}
}

func (r *processRunner) processID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

func (r *processRunner) exited() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// report says how the process ended and what it last wrote. It waits for both.
func (r *processRunner) report() string {
	<-r.done
	how := "never started"
	if r.state != nil {
		how = r.state.String()
	}
	if words := r.lastWords(); words != "" {
		how += "; " + words
	}
	return how
}

// lastWords is what the process last wrote, empty if that is nothing. It waits for its end.
func (r *processRunner) lastWords() string {
	<-r.drained
	if lines := r.errors.lastLines(reportLines); lines != "" {
		return "last on stderr: " + lines
	}
	return ""
}

// Diagnose implements runner.Runner. What there is to say of a failed start, [Process] says.
func (r *processRunner) Diagnose(context.Context) string { return "" }

// Stdout implements runner.Runner. go-plugin takes the first line; it would stop reading at a long one, so the rest never gets there.
func (r *processRunner) Stdout() io.ReadCloser {
	return &handshakeReader{file: untilDeadline{r.stdout}, rest: printLog{log: r.log}}
}

// Stderr implements runner.Runner. go-plugin asks for it once and reads it to its end.
func (r *processRunner) Stderr() io.ReadCloser {
	return guardLog(&stderrReader{untilDeadline{r.stderr}, r.errors, r.drained})
}

// Name implements runner.Runner.
func (r *processRunner) Name() string { return r.cmd.Path }

// ID implements runner.Runner.
func (r *processRunner) ID() string { return strconv.Itoa(r.processID()) }

// PluginToHost implements runner.Runner.
func (r *processRunner) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (r *processRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// untilDeadline reads until the end or the deadline that the death of the process sets.
type untilDeadline struct{ *os.File }

func (u untilDeadline) Read(p []byte) (int, error) {
	n, err := u.File.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}
