package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/executor"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

// TestMain is also an executor of its own process, for tests that kill one.
func TestMain(m *testing.M) {
	plugintest.Main(plugin(executor.Options{}, executor.Serve))
	goleak.VerifyTestMain(m)
}

func plugin(o executor.Options, serve func(*sdk.Context, executor.Options) error) *sdk.Plugin {
	return sdk.Define(sdk.Manifest{Name: "bash-test", Version: "1.0.0", Provides: []sdk.Seam{bash.Seam}}, sdk.NoConfig{},
		func(c *sdk.Context, _ sdk.NoConfig) error { return serve(c, o) })
}

// fixture is an executor that runs in the test's process, and a client of it.
type fixture struct {
	*bash.Client
	instance *plugintest.Instance
	host     *plugintest.Host
	events   *eventLog
}

// start serves an executor with these options until the end of the test.
func start(t testing.TB, o executor.Options) *fixture {
	t.Helper()
	return startWith(t, o, executor.Serve)
}

// startIn is start with a directory for temporary files.
func startIn(t *testing.T, tmp string, o executor.Options) *fixture {
	t.Helper()
	return startWith(t, o, func(c *sdk.Context, o executor.Options) error {
		before, had := os.LookupEnv("TMPDIR")
		os.Setenv("TMPDIR", tmp)
		defer func() {
			if os.Unsetenv("TMPDIR"); had {
				os.Setenv("TMPDIR", before)
			}
		}()
		return executor.Serve(c, o)
	})
}

func startWith(t testing.TB, o executor.Options, serve func(*sdk.Context, executor.Options) error) *fixture {
	t.Helper()
	f := &fixture{host: &plugintest.Host{}, events: &eventLog{}}
	f.instance = plugintest.Start(t, plugin(o, serve), f.options())
	f.Client = bash.NewClient(f.instance.Conn())
	return f
}

// startProcess is start in a process of its own, with the default options.
func startProcess(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{host: &plugintest.Host{}, events: &eventLog{}}
	f.instance = plugintest.StartProcess(t, "bash-test", f.options())
	f.Client = bash.NewClient(f.instance.Conn())
	return f
}

func (f *fixture) options() plugintest.Options {
	return plugintest.Options{
		Host:  f.host,
		Seams: func(r grpc.ServiceRegistrar) { eventsv1.RegisterEventsServer(r, f.events) },
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

func (l *eventLog) all() []*eventsv1.PublishRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*eventsv1.PublishRequest(nil), l.events...)
}

// run runs a command without a session in a directory of the test's.
func (f *fixture) run(t testing.TB, command string) *bashv1.Result {
	t.Helper()
	return f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: command}})
}

func (f *fixture) runWith(t testing.TB, run *bashv1.RunRequest_Run) *bashv1.Result {
	t.Helper()
	result, err := f.Run(t.Context(), run, nil)
	if err != nil {
		t.Fatalf("run %q: %v", run.GetCommand().GetCommand(), err)
	}
	return result
}

// task starts a background command of a session.
func (f *fixture) task(t testing.TB, session, command string) string {
	t.Helper()
	id, err := f.Start(t.Context(), &bashv1.Command{Command: command, SessionId: session})
	if err != nil {
		t.Fatalf("start %q: %v", command, err)
	}
	return id
}

// eventually waits for something that another process does.
func eventually(t testing.TB, what string, holds func() bool) {
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

// readAll reads a task until it is over, and returns all that it printed.
func (f *fixture) readAll(t testing.TB, id, session string) (stdout, stderr string, last *bashv1.ReadResponse) {
	t.Helper()
	eventually(t, id+" over", func() bool {
		r, err := f.Read(t.Context(), id, session)
		if err != nil {
			t.Fatalf("read %s: %v", id, err)
		}
		stdout, stderr, last = stdout+string(r.GetStdout()), stderr+string(r.GetStderr()), r
		s := r.GetStatus()
		return s.GetState() != bashv1.TaskStatus_STATE_RUNNING && (s.GetExit() != nil || r.GetStatus().GetState() == bashv1.TaskStatus_STATE_COMPLETED)
	})
	return stdout, stderr, last
}

// running tells whether a process with exactly these arguments is there.
func running(args ...string) bool { return len(pidsOf(args...)) > 0 }

func pidsOf(args ...string) (pids []int) {
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

// sleeper returns arguments of sleep that no other test uses.
var sleeper = func() func() string {
	var mu sync.Mutex
	n := os.Getpid()%1000*1000 + 30_000_000
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprint(n)
	}
}()
