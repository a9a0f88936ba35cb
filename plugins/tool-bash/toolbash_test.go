package toolbash

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// executor stands in for a provider of `bash`. It keeps what it was asked, under mu.
type executor struct {
	bashv1.UnimplementedBashServer
	defaultsErr error
	run         func(stream runStream) error
	read        func() (*bashv1.ReadResponse, error)
	kill        func() (*bashv1.KillResponse, error)
	startErr    error

	mu     sync.Mutex
	ran    []*bashv1.RunRequest_Run
	starts []*bashv1.Command
	reads  []*bashv1.ReadRequest
	kills  []*bashv1.KillRequest
	claims []string
}

type runStream = grpc.BidiStreamingServer[bashv1.RunRequest, bashv1.RunResponse]

func (e *executor) Defaults(context.Context, *bashv1.DefaultsRequest) (*bashv1.DefaultsResponse, error) {
	if e.defaultsErr != nil {
		return nil, e.defaultsErr
	}
	return &bashv1.DefaultsResponse{TimeoutMs: 120000, MaxTimeoutMs: 600000, Cwd: "/srv/host"}, nil
}

func (e *executor) Run(stream runStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.ran = append(e.ran, first.GetRun())
	e.mu.Unlock()
	return e.run(stream)
}

func (e *executor) Start(_ context.Context, req *bashv1.StartRequest) (*bashv1.StartResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.starts = append(e.starts, req.GetCommand())
	return &bashv1.StartResponse{TaskId: "bash-1"}, e.startErr
}

func (e *executor) Read(ctx context.Context, req *bashv1.ReadRequest) (*bashv1.ReadResponse, error) {
	e.mu.Lock()
	e.reads = append(e.reads, req)
	e.claims = append(e.claims, metadata.ValueFromIncomingContext(ctx, api.MetadataClaim)...)
	e.mu.Unlock()
	return e.read()
}

func (e *executor) Kill(ctx context.Context, req *bashv1.KillRequest) (*bashv1.KillResponse, error) {
	e.mu.Lock()
	e.kills = append(e.kills, req)
	e.claims = append(e.claims, metadata.ValueFromIncomingContext(ctx, api.MetadataClaim)...)
	e.mu.Unlock()
	return e.kill()
}

// asked is how often the executor was asked to do anything.
func (e *executor) asked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ran) + len(e.starts) + len(e.reads) + len(e.kills)
}

// ends is a command that prints, piece by piece, and ends.
func ends(result *bashv1.Result, output ...string) func(runStream) error {
	return func(stream runStream) error {
		for _, data := range output {
			if err := stream.Send(&bashv1.RunResponse{Event: &bashv1.RunResponse_Output_{Output: &bashv1.RunResponse_Output{Data: []byte(data)}}}); err != nil {
				return err
			}
		}
		return stream.Send(&bashv1.RunResponse{Event: &bashv1.RunResponse_Result{Result: result}})
	}
}

// exit0 is a result with this on stdout.
func exit0(stdout string) *bashv1.Result {
	return &bashv1.Result{Stdout: &bashv1.Stream{Data: []byte(stdout)}, Stderr: &bashv1.Stream{}, Exit: &bashv1.Exit{}}
}

// start runs the plugin on the executor.
func start(t *testing.T, e *executor) grpc.ClientConnInterface {
	t.Helper()
	return plugintest.Start(t, Plugin(), plugintest.Options{
		Seams: func(r grpc.ServiceRegistrar) { bashv1.RegisterBashServer(r, e) },
	}).Conn()
}

func list(t *testing.T, conn grpc.ClientConnInterface) []*toolsv1.Tool {
	t.Helper()
	answer, err := toolsv1.NewToolProviderClient(conn).List(t.Context(), &toolsv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetTools()
}

// bashCall is a call in a session whose directory is /home/ann.
func bashCall(t *testing.T, name string, arguments any) *toolsv1.Call {
	t.Helper()
	text, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return &toolsv1.Call{CallId: "c1", Name: name, Arguments: string(text), SessionId: "s1", SessionCwd: "/home/ann"}
}

type object = map[string]any

// command is the arguments of a call of bash, with some more.
func command(command string, more ...object) object {
	arguments := object{"command": command, "description": "Do it"}
	for _, o := range more {
		for k, v := range o {
			arguments[k] = v
		}
	}
	return arguments
}

func wantResult(t *testing.T, got, want *toolsv1.Result) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("result\n%v, want\n%v", got, want)
	}
}

func content(s string) []*toolsv1.Content {
	return []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: s}}}
}

func toolError(text string) *toolsv1.Result {
	return &toolsv1.Result{Content: content(text), IsError: true, Error: &toolsv1.Error{Name: "ToolError", Code: "TOOL_FAILED"}}
}

func argsError(text string) *toolsv1.Result {
	return &toolsv1.Result{Content: content(text), IsError: true, Error: &toolsv1.Error{Name: "ToolArgsError", Code: "INVALID_ARGS"}}
}
