// Package executortest is the conformance suite of the bash seam: what holds for every executor on a machine, confined or not,
// seen through the seam alone.
//
// # Usage
//
//	func TestMain(m *testing.M) {
//		plugintest.Main(mine.Plugin())
//		goleak.VerifyTestMain(m)
//	}
//
//	func TestExecutor(t *testing.T) { executortest.Run(t, executortest.Executor{Plugin: mine.Plugin}) }
//
// # What an executor must allow
//
// The configuration has the keys cwd, shell, timeoutMs, maxTimeoutMs, killGraceMs, outputLimitBytes, spillLimitBytes and keepEnv.
// Commands may write below their session's directory, read /proc and the system's programs, and are visible in this machine's
// table of processes.
package executortest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

// Executor is what is tested.
type Executor struct {
	// Plugin is the plugin that serves the seam.
	Plugin func() *sdk.Plugin
	// Config is the configuration of all its instances; tests add to it.
	Config map[string]any
	// NeedsDirectory says that the executor cannot confine a command without its private directory, and refuses it then.
	NeedsDirectory bool
}

// rule is a sentence of the contract.
type rule struct {
	name  string
	holds func(*testing.T, Executor)
}

// Run holds an executor to the contract, sentence by sentence.
func Run(t *testing.T, e Executor) {
	for _, chapter := range []struct {
		name  string
		rules []rule
	}{
		{"command", commandRules}, {"environment", environmentRules}, {"output", outputRules}, {"end", endRules}, {"kill", killRules},
		{"task", taskRules}, {"fence", fenceRules}, {"notice", noticeRules}, {"loss", lossRules},
	} {
		t.Run(chapter.name, func(t *testing.T) {
			for _, r := range chapter.rules {
				t.Run(r.name, func(t *testing.T) { r.holds(t, e) })
			}
		})
	}
}

// config is what a test adds to the configuration.
type config map[string]any

// instance is an executor that serves a test, and its client.
type instance struct {
	*bash.Client
	*plugintest.Instance
	host   *plugintest.Host
	events *eventLog
	dir    string // the directory of all sessions
}

// start serves the executor in this process until the end of the test.
func (e Executor) start(t *testing.T, c config) *instance {
	t.Helper()
	return e.serve(t, c, plugintest.Options{}, func(o plugintest.Options) *plugintest.Instance {
		return plugintest.Start(t, e.Plugin(), o)
	})
}

// startProcess serves it in a process of its own.
func (e Executor) startProcess(t *testing.T) *instance {
	t.Helper()
	return e.serve(t, nil, plugintest.Options{}, func(o plugintest.Options) *plugintest.Instance {
		return plugintest.StartProcess(t, e.Plugin().Name(), o)
	})
}

// restart serves it again after a crash of the one before.
func (e Executor) restart(t *testing.T, before *instance, crash string) *instance {
	t.Helper()
	o := plugintest.Options{Host: before.host, Checkpoint: before.host.LastCheckpoint(), Crash: crash}
	o.Seams = func(r grpc.ServiceRegistrar) { eventsv1.RegisterEventsServer(r, before.events) }
	i := e.serve(t, config{"cwd": before.dir}, o, func(o plugintest.Options) *plugintest.Instance {
		return plugintest.StartProcess(t, e.Plugin().Name(), o)
	})
	i.events = before.events
	return i
}

func (e Executor) serve(t *testing.T, c config, o plugintest.Options, start func(plugintest.Options) *plugintest.Instance) *instance {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{host: o.Host, events: &eventLog{}, dir: dir}
	if i.host == nil {
		i.host = &plugintest.Host{}
	}
	all := config{"cwd": dir}
	maps.Copy(all, e.Config)
	maps.Copy(all, c)
	o.Host, o.Config = i.host, all
	if o.Seams == nil {
		o.Seams = func(r grpc.ServiceRegistrar) { eventsv1.RegisterEventsServer(r, i.events) }
	}
	i.Instance = start(o)
	i.Client = bash.NewClient(i.Conn())
	return i
}

// command is a command of a session in the sessions' directory.
func (i *instance) command(session, text string) *bashv1.Command {
	return &bashv1.Command{Command: text, SessionId: session, SessionCwd: i.dir}
}

func (i *instance) run(t *testing.T, text string) *bashv1.Result {
	t.Helper()
	return i.runFor(t, text, 0)
}

func (i *instance) runFor(t *testing.T, text string, timeoutMs int64) *bashv1.Result {
	t.Helper()
	result, err := i.Run(t.Context(), &bashv1.RunRequest_Run{Command: i.command("s-1", text), TimeoutMs: timeoutMs}, nil)
	if err != nil {
		t.Fatalf("run %.200q: %v", text, err)
	}
	return result
}

// runError runs what cannot be run and returns the error.
func (i *instance) runError(t *testing.T, command *bashv1.Command) error {
	t.Helper()
	result, err := i.Run(t.Context(), &bashv1.RunRequest_Run{Command: command}, nil)
	if err == nil {
		t.Fatalf("run %v: got %v, want an error", command, result)
	}
	return err
}

// task starts a background command.
func (i *instance) task(t *testing.T, session, text string) string {
	t.Helper()
	id, err := i.Start(t.Context(), i.command(session, text))
	if err != nil {
		t.Fatalf("start %q: %v", text, err)
	}
	return id
}

// read reads a task until it is over, and returns what it printed on stdout.
func (i *instance) read(t *testing.T, id, session string) (stdout string, last *bashv1.ReadResponse) {
	t.Helper()
	eventually(t, id+" over", func() bool {
		r, err := i.Read(t.Context(), id, session)
		if err != nil {
			t.Fatalf("read %s: %v", id, err)
		}
		stdout, last = stdout+string(r.GetStdout()), r
		return r.GetStatus().GetExit() != nil
	})
	return stdout, last
}

// readUntil reads a task until stdout has a text.
func (i *instance) readUntil(t *testing.T, id, session, want string) {
	t.Helper()
	stdout := ""
	eventually(t, id+" printed "+want, func() bool {
		r, err := i.Read(t.Context(), id, session)
		if err != nil {
			t.Fatalf("read %s: %v", id, err)
		}
		stdout += string(r.GetStdout())
		return strings.Contains(stdout, want)
	})
}

// expectError checks an error's code and text.
func expectError(t *testing.T, err error, code codes.Code, message string) {
	t.Helper()
	if status.Code(err) != code || status.Convert(err).Message() != message {
		t.Errorf("got %v, want %v: %s", err, code, message)
	}
}

// expectOut checks what a command printed and that it exited with a code.
func expectOut(t *testing.T, r *bashv1.Result, stdout string, code int32) {
	t.Helper()
	if got := string(r.GetStdout().GetData()); got != stdout || r.GetExit().GetCode() != code || r.GetExit().GetSignal() != "" {
		t.Errorf("got %.300q, exit %v, stderr %.300q; want %.300q, exit code %d", got, r.GetExit(), r.GetStderr().GetData(), stdout, code)
	}
}

// eventLog stands in for the host's events.
type eventLog struct {
	eventsv1.UnimplementedEventsServer
	mu     sync.Mutex
	fail   int // this many calls are refused as unavailable
	events []*eventsv1.PublishRequest
}

func (l *eventLog) Publish(_ context.Context, req *eventsv1.PublishRequest) (*eventsv1.PublishResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail > 0 {
		l.fail--
		return nil, status.Error(codes.Unavailable, "being replaced")
	}
	l.events = append(l.events, req)
	return &eventsv1.PublishResponse{}, nil
}

// ends are the ends of tasks that were published.
func (l *eventLog) ends(t *testing.T) []*bashv1.TaskFinished {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var ends []*bashv1.TaskFinished
	for _, e := range l.events {
		end := &bashv1.TaskFinished{}
		if err := proto.Unmarshal(e.GetData(), end); err != nil {
			t.Fatal(err)
		}
		if e.GetTopic() != "bash.task.finished" || e.GetKey() != end.GetTaskId()+":finished" {
			t.Errorf("published on %s with key %s: %v", e.GetTopic(), e.GetKey(), end)
		}
		ends = append(ends, end)
	}
	return ends
}

// eventually waits for something that another process does.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(15 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not: %s", what)
		}
	}
}

// running returns the processes with exactly these arguments.
func running(args ...string) (pids []int) {
	want := []byte(strings.Join(args, "\x00") + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, want) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// seconds returns an argument of sleep that nobody else uses.
var seconds = func() func() string {
	var mu sync.Mutex
	n := os.Getpid()%1000*1000 + 40_000_000
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprint(n)
	}
}()
