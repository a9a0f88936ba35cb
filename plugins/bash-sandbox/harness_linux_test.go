package bashsandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

const (
	// envServe makes the test's program an executor that runs the variable's value, for tests that kill one.
	envServe = "TEST_SANDBOX_SERVE"
	// envActivate makes it try to activate a sandbox with the variable's value as the configuration, and print the error.
	envActivate = "TEST_SANDBOX_ACTIVATE"
)

func TestMain(m *testing.M) {
	plugintest.Main(bashsandbox.Plugin())
	switch {
	case len(os.Args) == 3 && os.Args[1] == "reach":
		reachSocket(os.Args[2])
		os.Exit(0)
	case os.Getenv(envServe) != "":
		f := start(&childTB{}, map[string]any{"cwd": os.Getenv("PWD")})
		f.run(&childTB{}, os.Getenv(envServe))
		panic("the command has ended")
	case os.Getenv(envActivate) != "":
		var config map[string]any
		if err := json.Unmarshal([]byte(os.Getenv(envActivate)), &config); err != nil {
			panic(err)
		}
		forbidLandlock(os.Getenv("TEST_SANDBOX_NO_LANDLOCK"))
		_, err := plugintest.Activate(&childTB{}, bashsandbox.Plugin(), options(config))
		fmt.Println(err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// childTB is what a child has for a test.
type childTB struct{ testing.TB }

func (*childTB) Helper()                      {}
func (*childTB) Cleanup(func())               {}
func (*childTB) Context() context.Context     { return context.Background() }
func (*childTB) Output() io.Writer            { return io.Discard }
func (*childTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*childTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

// fixture is a sandbox that runs in the test's process, and a client of it.
type fixture struct {
	*bash.Client
	instance *plugintest.Instance
}

// events stands in for the host's.
type events struct {
	eventsv1.UnimplementedEventsServer
}

func (events) Publish(context.Context, *eventsv1.PublishRequest) (*eventsv1.PublishResponse, error) {
	return &eventsv1.PublishResponse{}, nil
}

func startPlugin(t testing.TB, plugin *sdk.Plugin, config map[string]any) *fixture {
	t.Helper()
	if config["cwd"] == nil && config != nil {
		config["cwd"] = t.TempDir()
	}
	f := &fixture{instance: plugintest.Start(t, plugin, options(config))}
	f.Client = bash.NewClient(f.instance.Conn())
	return f
}

func options(config map[string]any) plugintest.Options {
	o := plugintest.Options{Seams: func(r grpc.ServiceRegistrar) { eventsv1.RegisterEventsServer(r, events{}) }}
	if config != nil {
		o.Config = config
	}
	return o
}

// start serves a sandbox until the end of the test.
func start(t testing.TB, config map[string]any) *fixture {
	t.Helper()
	return startPlugin(t, bashsandbox.Plugin(), config)
}

// run runs a command without a session.
func (f *fixture) run(t testing.TB, command string) *bashv1.Result {
	t.Helper()
	return f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: command}})
}

// in runs a command of a session whose workspace is dir.
func (f *fixture) in(t testing.TB, dir, command string) *bashv1.Result {
	t.Helper()
	return f.runWith(t, &bashv1.RunRequest_Run{Command: session(dir, command)})
}

func session(dir, command string) *bashv1.Command {
	return &bashv1.Command{Command: command, SessionId: "session of " + dir, SessionCwd: dir}
}

func (f *fixture) runWith(t testing.TB, run *bashv1.RunRequest_Run) *bashv1.Result {
	t.Helper()
	result, err := f.Run(t.Context(), run, nil)
	if err != nil {
		t.Fatalf("run %q: %v", run.GetCommand().GetCommand(), err)
	}
	return result
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

// write writes a file, with the directories above it.
func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
