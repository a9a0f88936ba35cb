package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

var (
	bashSeam = sdk.Seam{Name: "bash", Service: "dsh.bash.v1.Bash"}
	provider = sdk.Seam{Name: "tool-provider", Service: "dsh.tools.v1.ToolProvider", Contribution: true}
)

// testPlugins are served by this test program when the host starts it as a plugin.
var testPlugins = map[string]func() *sdk.Plugin{
	// bash answers Defaults with the caller and its own process id, and runs commands that tell the test what to do.
	"bash": func() *sdk.Plugin {
		m := sdk.Manifest{Name: "bash", Provides: []sdk.Seam{bashSeam}}
		return sdk.Define(m, struct {
			Cwd string `json:"cwd"`
		}{Cwd: "/default"}, func(c *sdk.Context, config struct {
			Cwd string `json:"cwd"`
		},
		) error {
			bashv1.RegisterBashServer(c, &testBash{cwd: config.Cwd, c: c})
			return nil
		})
	},
	// relay has tools that call the seam bash on behalf of their caller.
	"relay": func() *sdk.Plugin {
		m := sdk.Manifest{Name: "relay", Provides: []sdk.Seam{provider}, Injects: []sdk.Injection{bashSeam.Required()}}
		return sdk.Define(m, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
			toolsv1.RegisterToolProviderServer(c, &relay{bash: bashv1.NewBashClient(c.Conn())})
			return nil
		})
	},
	// stranger has the same tools, but injects nothing.
	"stranger": func() *sdk.Plugin {
		m := sdk.Manifest{Name: "stranger", Provides: []sdk.Seam{provider}}
		return sdk.Define(m, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
			toolsv1.RegisterToolProviderServer(c, &relay{bash: bashv1.NewBashClient(c.Conn())})
			return nil
		})
	},
	"growing": growingPlugin,
	"broken": func() *sdk.Plugin {
		return sdk.Define(sdk.Manifest{Name: "broken"}, sdk.NoConfig{}, func(*sdk.Context, sdk.NoConfig) error {
			return errors.New("no luck today")
		})
	},
	"panics": func() *sdk.Plugin {
		return sdk.Define(sdk.Manifest{Name: "panics"}, sdk.NoConfig{}, func(*sdk.Context, sdk.NoConfig) error {
			panic("oh no")
		})
	},
	// forgetful serves something else than it says, and leaves its process id in a file.
	"forgetful": func() *sdk.Plugin {
		m := sdk.Manifest{Name: "forgetful", Provides: []sdk.Seam{{Name: "x", Service: "test.X"}}}
		return sdk.Define(m, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
			bashv1.RegisterBashServer(c, &testBash{c: c})
			return os.WriteFile(os.Getenv("PID_FILE"), []byte(strconv.Itoa(os.Getpid())), 0o600)
		})
	},
}

type testBash struct {
	bashv1.UnimplementedBashServer
	cwd string
	c   *sdk.Context
}

func (b *testBash) Defaults(ctx context.Context, _ *bashv1.DefaultsRequest) (*bashv1.DefaultsResponse, error) {
	return &bashv1.DefaultsResponse{Cwd: sdk.Caller(ctx) + "@" + b.cwd, TimeoutMs: int64(os.Getpid())}, nil
}

// Run acts on the command: "die", "panic", "wait" (until the call ends, then leave a file), "claim", "complain" (on stderr), "echo …".
func (b *testBash) Run(stream grpc.BidiStreamingServer[bashv1.RunRequest, bashv1.RunResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	word, rest, _ := strings.Cut(first.GetRun().GetCommand().GetCommand(), " ")
	answer := func(data string) error {
		return stream.Send(&bashv1.RunResponse{Event: &bashv1.RunResponse_Output_{Output: &bashv1.RunResponse_Output{Data: []byte(data)}}})
	}
	switch word {
	case "die":
		fmt.Println("printed before death")
		fmt.Fprintln(os.Stderr, "about to die")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "crash":
		return answer(b.c.Crash())
	case "panic":
		panic("cannot run this")
	case "complain":
		fmt.Fprintln(os.Stderr, rest)
		return answer("complained")
	case "wait":
		if err := answer("waiting"); err != nil {
			return err
		}
		<-stream.Context().Done()
		err := context.Cause(stream.Context())
		if err := os.WriteFile(rest, []byte(err.Error()), 0o600); err != nil {
			return err
		}
		return status.FromContextError(err).Err()
	case "claim":
		key, err := b.c.Claim(stream.Context(), bashSeam, "bash")
		if err != nil {
			return err
		}
		return answer(key)
	default:
		return answer(rest)
	}
}

type relay struct {
	toolsv1.UnimplementedToolProviderServer
	bash bashv1.BashClient
}

func (r *relay) List(context.Context, *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	return &toolsv1.ListResponse{Tools: []*toolsv1.Tool{{Name: "whoami"}, {Name: "run"}}}, nil
}

func (r *relay) Execute(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	text, err := r.call(stream.Context(), first.GetCall())
	if err != nil {
		return err
	}
	return stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: &toolsv1.Result{
		Content: []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: text}}},
	}}})
}

func (r *relay) call(ctx context.Context, call *toolsv1.Call) (string, error) {
	if call.GetName() == "whoami" {
		answer, err := r.bash.Defaults(ctx, &bashv1.DefaultsRequest{})
		return answer.GetCwd(), err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return runBash(ctx, r.bash, call.GetArguments())
}

// runBash returns what the first output of a command is.
func runBash(ctx context.Context, bash bashv1.BashClient, command string) (string, error) {
	stream, err := bash.Run(ctx)
	if err != nil {
		return "", err
	}
	err = stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: command}}}})
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	answer, err := stream.Recv()
	return string(answer.GetOutput().GetData()), err
}

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve-plugin" {
		sdk.Serve(testPlugins[os.Args[2]]())
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or every plugin under the race detector takes a second to end
	// The one goroutine that starts processes is there for good.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dsh-go/dsh/host/process.startOnKeptThread.func1.1"))
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func options(t *testing.T, yaml string) (host.Options, *syncBuffer) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := &syncBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return host.Options{
		Config: c, Env: os.Environ(), Builtins: []string{"bash", "relay"},
		Builtin: func(name string) ([]string, bool) {
			_, ok := testPlugins[name]
			return []string{self, "serve-plugin", name}, ok
		},
		Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log}),
	}, log
}

// run starts a host, waits until it has settled, and stops it at the end of the test.
func run(t *testing.T, yaml string) (*host.Host, *grpc.ClientConn, *syncBuffer) {
	t.Helper()
	o, log := options(t, yaml)
	h, conn := begin(t, o)
	return h, conn, log
}

// begin is run for options.
func begin(t *testing.T, o host.Options) (*host.Host, *grpc.ClientConn) {
	t.Helper()
	h, err := host.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Stop()
		<-h.Done()
	})
	<-h.Settled()
	conn, closeConn, err := h.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeConn)
	return h, conn
}

func callTool(t *testing.T, conn *grpc.ClientConn, name, arguments string) *toolsv1.Result {
	t.Helper()
	stream, err := toolsv1.NewToolsClient(conn).Execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Call{Call: &toolsv1.Call{Name: name, Arguments: arguments}}}); err != nil {
		t.Fatal(err)
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r := event.GetResult(); r != nil {
			return r
		}
	}
}

func statusOf(t *testing.T, h *host.Host, id string) host.RowStatus {
	t.Helper()
	for _, s := range h.Status() {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("no row %q", id)
	return host.RowStatus{}
}

const twoRows = `
plugins:
  - id: front
    plugin: relay
  - id: shell
    plugin: bash
    config: {cwd: /somewhere}
`

func TestCallsGoToTheProviderWithTheCallersIdentity(t *testing.T) {
	_, conn, _ := run(t, twoRows)
	if got := callTool(t, conn, "whoami", "").GetContent()[0].GetText(); got != "front@/somewhere" {
		t.Errorf("the provider saw %q, want the row id of the caller and the configured directory", got)
	}
	answer, err := bashv1.NewBashClient(conn).Defaults(t.Context(), &bashv1.DefaultsRequest{})
	if err != nil || answer.GetCwd() != "cli@/somewhere" {
		t.Errorf("a call of the command line came as %q, %v", answer.GetCwd(), err)
	}
}

func TestAPluginCanCallOnlyWhatItInjects(t *testing.T) {
	_, conn, _ := run(t, "plugins:\n- {id: shell, plugin: bash}\n- {id: odd, plugin: stranger}\n")
	result := callTool(t, conn, "whoami", "")
	want := `Error: row "odd" may not call dsh.bash.v1.Bash: its manifest lacks an inject of the seam with service "dsh.bash.v1.Bash"`
	if got := result.GetContent()[0].GetText(); !result.GetIsError() || got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCancellingACallReachesTheProvider(t *testing.T) {
	_, conn, _ := run(t, twoRows)
	file := t.TempDir() + "/ended"
	if got := callTool(t, conn, "run", "wait "+file).GetContent()[0].GetText(); got != "waiting" {
		t.Fatalf("got %q", got)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		if data, err := os.ReadFile(file); err == nil && string(data) == "context canceled" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the provider never heard that its caller went away")
		}
	}
}

func TestADeadlineReachesTheProvider(t *testing.T) {
	_, conn, _ := run(t, twoRows)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	stream, err := bashv1.NewBashClient(conn).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "wait " + t.TempDir() + "/x"}}}})
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want deadline exceeded", err)
	}
}

func TestFramesOf64MiBPass(t *testing.T) {
	_, conn, _ := run(t, twoRows)
	big := strings.Repeat("x", 64<<20)
	got, err := runBash(t.Context(), bashv1.NewBashClient(conn), "echo "+big)
	if err != nil || got != big {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestAPanicOfAHandlerIsContained(t *testing.T) {
	_, conn, _ := run(t, twoRows)
	_, err := runBash(t.Context(), bashv1.NewBashClient(conn), "panic")
	if want := `plugin "bash" panicked in /dsh.bash.v1.Bash/Run: cannot run this`; status.Convert(err).Message() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if got, err := runBash(t.Context(), bashv1.NewBashClient(conn), "echo on"); err != nil || got != "on" {
		t.Errorf("the plugin does not go on: %q, %v", got, err)
	}
}

// waitFor polls what another process or goroutine brings about.
func waitFor(t *testing.T, true func() bool) {
	t.Helper()
	waitWithin(t, 10*time.Second, true)
}

// waitLong is waitFor for what takes a compiler.
func waitLong(t *testing.T, true func() bool) {
	t.Helper()
	waitWithin(t, 2*time.Minute, true)
}

func waitWithin(t *testing.T, limit time.Duration, true func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !true() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("it did not come about within %s", limit)
		}
	}
}

func TestClaimsAreAllottedOnceAndBindToTheInstance(t *testing.T) {
	_, conn, _ := run(t, twoRows)
	bash := bashv1.NewBashClient(conn)
	for n := 1; n <= 3; n++ {
		if got, err := runBash(t.Context(), bash, "claim"); err != nil || got != fmt.Sprintf("bash-%d", n) {
			t.Fatalf("claim %d gave %q, %v", n, got, err)
		}
	}
	answer, err := bash.Defaults(sdk.WithClaim(t.Context(), "bash-2"), &bashv1.DefaultsRequest{})
	if err != nil || answer.GetCwd() != "cli@/somewhere" {
		t.Errorf("a call with a claim: %q, %v", answer.GetCwd(), err)
	}
}

func TestUnknownToolsAndDuplicateTools(t *testing.T) {
	_, conn, log := run(t, twoRows+"  - {id: twin, plugin: relay}\n")
	result := callTool(t, conn, "nope", "{}")
	if got := result.GetContent()[0].GetText(); got != `Error: unknown tool "nope"` || !result.GetIsError() ||
		result.GetError().GetName() != "ToolNotFoundError" || result.GetError().GetCode() != "UNKNOWN_TOOL" {
		t.Errorf("got %v", result)
	}
	if !strings.Contains(log.String(), `tool "whoami" is already registered`) {
		t.Error("the second registration of a tool was not reported")
	}
	list, err := toolsv1.NewToolsClient(conn).List(t.Context(), &toolsv1.ListRequest{})
	if err != nil || len(list.GetTools()) != 2 {
		t.Errorf("tools: %v, %v", list.GetTools(), err)
	}
}

func TestCheckActivatesNothingAndFindsEveryFault(t *testing.T) {
	o, _ := options(t, "plugins:\n- {id: front, plugin: relay}\n- {id: bad, plugin: broken}\n")
	report, err := host.Check(o)
	if err != nil {
		t.Fatal(err)
	}
	want := `test.yaml:2: row "front": needs seam "bash", which no row provides`
	if report.Err == nil || report.Err.Error() != want {
		t.Errorf("got %v, want %q (and not the activation error of the other row)", report.Err, want)
	}
	o, _ = options(t, twoRows)
	if report, err = host.Check(o); err != nil || report.Err != nil || strings.Join(report.Order, " ") != "shell front" {
		t.Errorf("got %v, %v", report, err)
	}
}
