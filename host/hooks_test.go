package host_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/hook"
)

// hookConfig says what a test hook does before and after a call.
type hookConfig struct {
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Mode   string `json:"mode,omitempty"`
}

func hookPlugin() *sdk.Plugin {
	m := sdk.Manifest{Name: "hook", Provides: []sdk.Seam{hook.Seam}}
	return sdk.Define(m, hookConfig{}, func(c *sdk.Context, config hookConfig) error {
		if config.Before == "never starts" {
			return errors.New("it does not start")
		}
		var modes []*toolsv1.Mode
		if config.Mode != "" {
			modes = append(modes, &toolsv1.Mode{Id: config.Mode})
		}
		hook.Serve(c, hook.Hook{
			Modes: modes,
			Before: func(_ context.Context, call *toolsv1.Call) (hook.Decision, error) {
				word, rest, _ := strings.Cut(config.Before, " ")
				switch word {
				case "deny":
					return hook.Deny(rest), nil
				case "ask":
					return hook.Ask(rest, "key"), nil
				case "append":
					return hook.Rewrite(call.GetArguments() + rest), nil
				case "fail":
					return hook.Decision{}, errors.New("cannot decide")
				case "undecided":
					return hook.Decision{}, nil
				case "panic":
					panic("lost my mind")
				case "die":
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {}
				}
				return hook.Allow(), nil
			},
			After: func(_ context.Context, _ *toolsv1.Call, result *toolsv1.Result) (*toolsv1.Result, error) {
				switch word, rest, _ := strings.Cut(config.After, " "); word {
				case "append":
					return &toolsv1.Result{Content: []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: result.GetContent()[0].GetText() + rest}}}}, nil
				case "fail":
					return nil, errors.New("cannot read it")
				}
				return nil, nil
			},
		})
		return nil
	})
}

// slowPlugin has a tool that runs until it is cancelled, and one that does not even mind that.
func slowPlugin() *sdk.Plugin {
	m := sdk.Manifest{Name: "slow", Provides: []sdk.Seam{provider}}
	return sdk.Define(m, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
		toolsv1.RegisterToolProviderServer(c, slow{})
		return nil
	})
}

type slow struct {
	toolsv1.UnimplementedToolProviderServer
}

func (slow) List(context.Context, *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	return &toolsv1.ListResponse{Tools: []*toolsv1.Tool{{Name: "slow"}}}, nil
}

func (slow) Execute(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if request.GetCancel() != nil {
			return stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: &toolsv1.Result{}}})
		}
	}
}

func init() {
	testPlugins["hook"] = hookPlugin
	testPlugins["slow"] = slowPlugin
}

func TestHooksRuleOverCalls(t *testing.T) {
	for _, test := range []struct {
		name, first, second string // the configurations of two hooks
		want                string
		code                string // "": it is no error
	}{
		{"allowed", "{}", "{}", "echoed", ""},
		{"denied, with the reason", "{before: deny not on a Sunday}", "{}", "Error: not on a Sunday", "DENIED"},
		{"denied by the second hook", "{}", "{before: deny never}", "Error: never", "DENIED"},
		{"denied without a reason", "{before: deny}", "{}", `Error: hook "first" denied the call`, "DENIED"},
		{"rewritten, in the order of the rows", "{before: append -1}", "{before: append -2}", "echoed-1-2", ""},
		{"the result rewritten, in the order of the rows", "{after: append +1}", "{after: append +2}", "echoed+1+2", ""},
		{"a hook that fails refuses", "{before: fail}", "{}", `Error: hook "first" failed: cannot decide`, "HOOK_FAILED"},
		{"a hook that gives no decision refuses", "{}", "{before: undecided}", `Error: hook "second" gave no decision`, "HOOK_FAILED"},
		{"a hook that panics refuses", "{before: panic}", "{}", `Error: hook "first" failed: plugin "hook" panicked in /dsh.tools.v1.ToolHook/Before: lost my mind`, "HOOK_FAILED"},
		{"a hook that crashes refuses", "{}", "{before: die}", `Error: hook "second" failed: `, "HOOK_FAILED"},
		{"a hook that fails after the call hides its result", "{}", "{after: fail}", `Error: hook "second" failed after the call: cannot read it`, "HOOK_FAILED"},
		{"a hook that asks refuses where nobody can be asked", "{before: ask}", "{}", `Error: hook "first" wants a person's approval, and there is nobody to ask`, "HOOK_FAILED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, conn, _ := run(t, twoRows+"  - {id: first, plugin: hook, config: "+test.first+"}\n  - {id: second, plugin: hook, config: "+test.second+"}\n")
			result := callTool(t, conn, "run", "echo echoed")
			got := result.GetContent()[0].GetText()
			if !strings.HasPrefix(got, test.want) || test.code == "" && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if result.GetError().GetCode() != test.code || result.GetIsError() != (test.code != "") {
				t.Errorf("got error %v, want code %q", result.GetError(), test.code)
			}
		})
	}
}

func TestAHookThatIsDownRefusesEveryCall(t *testing.T) {
	for config, want := range map[string]string{
		"{before: never starts}": `Error: hook "policy" failed: row "policy" failed: activate: it does not start`,
		"{befor: deny}":          `Error: hook "policy" failed: row "policy" failed: test.yaml:8: row "policy": unknown key "befor" in config; did you mean "before"?`,
	} {
		_, conn, _ := run(t, twoRows+"  - {id: policy, plugin: hook, config: "+config+"}\n")
		if got := callTool(t, conn, "run", "echo x").GetContent()[0].GetText(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestACallThatHangsIsEnded(t *testing.T) {
	_, conn, _ := run(t, "tools: {timeoutMs: 50}\nplugins:\n- {id: slow, plugin: slow}\n")
	result := callTool(t, conn, "slow", "{}")
	if got, want := result.GetContent()[0].GetText(), "Error: tool call timed out after 50ms"; got != want || result.GetError().GetCode() != "TOOL_TIMEOUT" {
		t.Errorf("got %q, %v, want %q", got, result.GetError(), want)
	}
}

func TestTheModesAreThoseOfTheFirstHookThatHasAny(t *testing.T) {
	_, conn, _ := run(t, "plugins:\n  - {id: first, plugin: hook}\n  - {id: second, plugin: hook, config: {mode: strict, before: die}}\n"+
		"  - {id: third, plugin: hook, config: {mode: lax}}\n  - {id: shell, plugin: bash}\n  - {id: front, plugin: relay}\n")
	modes := func() (ids []string) {
		list, err := toolsv1.NewToolsClient(conn).List(t.Context(), &toolsv1.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range list.GetModes() {
			ids = append(ids, mode.GetId())
		}
		return ids
	}
	if got := modes(); !slices.Equal(got, []string{"strict"}) {
		t.Fatalf("got %v", got)
	}
	for range 5 { // also while it is down: what a session has chosen stays chosen
		callTool(t, conn, "whoami", "")
		if got := modes(); !slices.Equal(got, []string{"strict"}) {
			t.Fatalf("got %v", got)
		}
	}
}
