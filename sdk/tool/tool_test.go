package tool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/plugintest"
	"github.com/dsh-go/dsh/sdk/tool"
	"github.com/dsh-go/dsh/sdk/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plugin is a plugin with the tools.
func plugin(tools ...tool.Tool) *sdk.Plugin {
	return sdk.Define(sdk.Manifest{Name: "test", Provides: []sdk.Seam{tool.Provider}}, sdk.NoConfig{},
		func(c *sdk.Context, _ sdk.NoConfig) error { return tool.Serve(c, tools...) })
}

// serve runs a plugin with the tools and returns the connection to it.
func serve(t *testing.T, tools ...tool.Tool) grpc.ClientConnInterface {
	t.Helper()
	return plugintest.Start(t, plugin(tools...), plugintest.Options{}).Conn()
}

func list(t *testing.T, conn grpc.ClientConnInterface) []*toolsv1.Tool {
	t.Helper()
	answer, err := toolsv1.NewToolProviderClient(conn).List(t.Context(), &toolsv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetTools()
}

func call(name, arguments string) *toolsv1.Call {
	return &toolsv1.Call{CallId: "c1", Name: name, Arguments: arguments, SessionId: "s1", SessionCwd: "/home/ann"}
}

type greetArgs struct {
	Name  string `json:"name" jsonschema:"whom to greet"`
	Times int    `json:"times,omitempty"`
}

var greet = tool.New("greet", "Greets somebody.", func(_ context.Context, _ *tool.Call, args greetArgs) (tool.Result, error) {
	return tool.Text(strings.Repeat("Hello, "+args.Name+"!", max(1, args.Times))), nil
})

type noArgs struct{}

// named is a tool that runs f.
func named(name string, f func(context.Context, *tool.Call) (tool.Result, error)) tool.Tool {
	return tool.New(name, "A tool of a test.", func(ctx context.Context, call *tool.Call, _ noArgs) (tool.Result, error) { return f(ctx, call) })
}

func TestListKeepsTheOrderOfToolsAndOfProperties(t *testing.T) {
	type z struct {
		B    string            `json:"b" jsonschema:"the first"`
		A    *float64          `json:"a,omitempty"`
		List []string          `json:"list,omitempty"`
		Map  map[string]string `json:"map,omitempty"`
	}
	provider := serve(t, tool.New("zulu", "Z.", func(context.Context, *tool.Call, z) (tool.Result, error) { return tool.Result{}, nil }), greet,
		named("bare", func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result{}, nil }))
	tools := list(t, provider)
	want := []*toolsv1.Tool{
		{Name: "zulu", Description: "Z.", InputSchema: `{"type":"object","properties":{"b":{"type":"string","description":"the first"},"a":{"type":"number"},` +
			`"list":{"type":"array","items":{"type":"string"}},"map":{"type":"object","additionalProperties":{"type":"string"}}},"required":["b"]}`},
		{Name: "greet", Description: "Greets somebody.", InputSchema: `{"type":"object","properties":{"name":{"type":"string","description":"whom to greet"},"times":{"type":"integer"}},"required":["name"]}`},
		{Name: "bare", Description: "A tool of a test.", InputSchema: `{"type":"object","properties":{}}`},
	}
	for i, got := range tools {
		if !proto.Equal(got, want[i]) {
			t.Errorf("tool %d is\n%v, want\n%v", i, got, want[i])
		}
	}
	if len(tools) != len(want) {
		t.Errorf("%d tools, want %d", len(tools), len(want))
	}
}

func TestDescribeCompletesTheSchemaAnewEachTime(t *testing.T) {
	n := 0
	counted := tool.New("count", "Counts.", func(context.Context, *tool.Call, greetArgs) (tool.Result, error) { return tool.Result{}, nil },
		tool.Describe[greetArgs](func(_ context.Context, s *jsonschema.Schema) {
			n++
			s.Properties["times"].Description += fmt.Sprintf("listed %d", n)
		}))
	provider := serve(t, counted)
	for i := 1; i <= 2; i++ {
		want := fmt.Sprintf(`"times":{"type":"integer","description":"listed %d"}`, i)
		if got := list(t, provider)[0].GetInputSchema(); !strings.Contains(got, want) {
			t.Errorf("schema %s, want it to contain %s", got, want)
		}
	}
}

func TestAToolThatCannotWorkFailsTheActivation(t *testing.T) {
	run := func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result{}, nil }
	for name, test := range map[string]struct {
		tools []tool.Tool
		want  string
	}{
		"two tools of one name": {[]tool.Tool{named("echo", run), named("other", run), named("echo", run)}, `tool "echo" is already registered`},
		"a name no model takes": {[]tool.Tool{named("say hi", run)}, `tool "say hi": a name is 1 to 64 letters, digits, hyphens and underscores`},
		"arguments that are no struct": {[]tool.Tool{tool.New("s", "", func(context.Context, *tool.Call, string) (tool.Result, error) { return tool.Result{}, nil })},
			`tool "s": the arguments must be a struct, not string`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plugintest.Activate(t, plugin(test.tools...), plugintest.Options{})
			if got := status.Convert(err).Message(); got != test.want {
				t.Errorf("activation said %q, want %q", got, test.want)
			}
		})
	}
}

func TestACallGetsItsArgumentsSessionAndDirectory(t *testing.T) {
	var got tool.Call
	look := named("look", func(_ context.Context, c *tool.Call) (tool.Result, error) {
		got.ID, got.Name, got.Arguments, got.SessionID, got.Cwd = c.ID, c.Name, c.Arguments, c.SessionID, c.Cwd
		return tool.Text("ok"), nil
	})
	tooltest.Execute(t, serve(t, look), call("look", ` {"x":1}`))
	if got.ID != "c1" || got.Name != "look" || got.Arguments != ` {"x":1}` || got.SessionID != "s1" || got.Cwd != "/home/ann" {
		t.Errorf("the tool got %+v", &got)
	}
}

func TestResults(t *testing.T) {
	noSuchTask := status.Error(codes.NotFound, `unknown bash task "bash-99"`)
	for name, test := range map[string]struct {
		result tool.Result
		err    error
		want   *toolsv1.Result
	}{
		"text": {tool.Text("hi"), nil, &toolsv1.Result{Content: text("hi")}},
		"display and exit": {tool.Result{Text: "a", Display: "b", Exit: &tool.Exit{Code: 5}}, nil,
			&toolsv1.Result{Content: text("a"), Display: text("b"), Exit: &toolsv1.Exit{Code: 5}}},
		"an error":                           {tool.Result{}, errors.New("no space left"), failure("ToolError", "TOOL_FAILED", "Error: no space left")},
		"an error hides all but the exit":    {tool.Result{Text: "a", Display: "b", Exit: &tool.Exit{Signal: "SIGKILL"}}, errors.New("aborted"), withSignal(failure("ToolError", "TOOL_FAILED", "Error: aborted"), "SIGKILL")},
		"an error with a name and a code":    {tool.Result{}, &tool.Error{Name: "Busy", Code: "BUSY", Message: "busy"}, failure("Busy", "BUSY", "Error: busy")},
		"invalid arguments":                  {tool.Result{}, tool.InvalidArguments("invalid n: expected %d", 1), failure("ToolArgsError", "INVALID_ARGS", "Error: invalid n: expected 1")},
		"a status shows its message only":    {tool.Result{}, noSuchTask, failure("ToolError", "TOOL_FAILED", `Error: unknown bash task "bash-99"`)},
		"a wrapped status shows its message": {tool.Result{}, fmt.Errorf("read: %w", noSuchTask), failure("ToolError", "TOOL_FAILED", `Error: read: unknown bash task "bash-99"`)},
		"text that is no UTF-8":              {tool.Result{Text: "a\xffb", Display: "\xe2\x82"}, nil, &toolsv1.Result{Content: text("a\uFFFDb"), Display: text("\uFFFD")}},
		"an error that is no UTF-8":          {tool.Result{}, errors.New("\xff"), failure("ToolError", "TOOL_FAILED", "Error: \uFFFD")},
	} {
		t.Run(name, func(t *testing.T) {
			provider := serve(t, named("x", func(context.Context, *tool.Call) (tool.Result, error) { return test.result, test.err }))
			if got := tooltest.Execute(t, provider, call("x", "")).Result; !proto.Equal(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

func TestAPanicIsAnErrorOfItsCallOnly(t *testing.T) {
	provider := serve(t, named("bad", func(context.Context, *tool.Call) (tool.Result, error) { panic("index out of range") }), greet)
	got := tooltest.Execute(t, provider, call("bad", "")).Result
	if want := failure("ToolError", "TOOL_FAILED", `Error: tool "bad" panicked: index out of range`); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tooltest.Execute(t, provider, call("greet", `{"name":"Ann"}`)).Text(); got != "Hello, Ann!" {
		t.Errorf("the next call said %q", got)
	}
}

func TestAnUnknownTool(t *testing.T) {
	got := tooltest.Execute(t, serve(t, greet), call("nope", "{}")).Result
	if want := failure("ToolNotFoundError", "UNKNOWN_TOOL", `Error: unknown tool "nope"`); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheFirstRequestMustBeTheCall(t *testing.T) {
	stream, err := toolsv1.NewToolProviderClient(serve(t, greet)).Execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Cancel_{Cancel: &toolsv1.ExecuteRequest_Cancel{}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want InvalidArgument", err)
	}
}

func TestOutputComesBeforeTheResult(t *testing.T) {
	big := strings.Repeat("é", 300<<10)
	for name, test := range map[string]struct {
		run  func(*tool.Call)
		want string
	}{
		"text":                                 {func(c *tool.Call) { c.Output("a"); c.Output(""); c.Output("b\n") }, "ab\n"},
		"a writer":                             {func(c *tool.Call) { _, _ = fmt.Fprintf(c, "%d\n", 7) }, "7\n"},
		"a character split between two writes": {func(c *tool.Call) { c.Output("\xe2"); c.Output("\x82"); c.Output("\xac") }, "€"},
		"a character whose rest never comes":   {func(c *tool.Call) { c.Output("a\xe2\x82") }, "a\uFFFD"},
		"a character cut short by another":     {func(c *tool.Call) { c.Output("\xe2\x82"); c.Output("b") }, "\uFFFDb"},
		"bytes that are no characters":         {func(c *tool.Call) { c.Output("\xff\xfe!") }, "\uFFFD\uFFFD!"},
		"more than one message may carry":      {func(c *tool.Call) { c.Output("a" + big) }, "a" + big},
	} {
		t.Run(name, func(t *testing.T) {
			provider := serve(t, named("x", func(_ context.Context, c *tool.Call) (tool.Result, error) { test.run(c); return tool.Text("done"), nil }))
			if got := tooltest.Execute(t, provider, call("x", "")).Output; got != test.want {
				t.Errorf("output %.100q, want %.100q", got, test.want)
			}
		})
	}
}

func TestOutputAfterRunHasReturnedIsRefused(t *testing.T) {
	var kept *tool.Call
	tooltest.Execute(t, serve(t, named("x", func(_ context.Context, c *tool.Call) (tool.Result, error) { kept = c; return tool.Text("done"), nil })), call("x", ""))
	if n, err := kept.Write([]byte("late")); n != 0 || err == nil {
		t.Errorf("a late write said %d, %v", n, err)
	}
}

func TestCancelEndsTheContextAndTheResultStillComes(t *testing.T) {
	waiting := make(chan struct{})
	provider := serve(t, named("wait", func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		close(waiting)
		<-ctx.Done()
		c.Output("stopping\n")
		return tool.Result{}, context.Cause(ctx)
	}))
	running := tooltest.Begin(t, provider, call("wait", ""))
	<-waiting
	running.Cancel()
	e := running.End()
	if e.Output != "stopping\n" || e.Text() != "Error: the call was cancelled" {
		t.Errorf("got %q and %q", e.Output, e.Text())
	}
}

func TestEndingTheCallEndsTheContext(t *testing.T) {
	waiting, ended := make(chan struct{}), make(chan struct{})
	provider := serve(t, named("wait", func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		close(waiting)
		<-ctx.Done()
		close(ended)
		return tool.Result{}, ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := toolsv1.NewToolProviderClient(provider).Execute(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Call{Call: call("wait", "")}}); err != nil {
		t.Fatal(err)
	}
	<-waiting
	cancel()
	<-ended
}

func text(s string) []*toolsv1.Content {
	return []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: s}}}
}

func failure(name, code, message string) *toolsv1.Result {
	return &toolsv1.Result{Content: text(message), IsError: true, Error: &toolsv1.Error{Name: name, Code: code}}
}

func withSignal(r *toolsv1.Result, signal string) *toolsv1.Result {
	r.Exit = &toolsv1.Exit{Signal: signal}
	return r
}
