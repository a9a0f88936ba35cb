package llmshell

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bashTools = []*toolsv1.Tool{{Name: "bash"}, {Name: "bash_output"}, {Name: "bash_kill"}}

func user(text string) *llm.Message { return &llm.Message{Role: llm.User, Text: text} }
func calls(c ...*llm.ToolCall) *llm.Message {
	return &llm.Message{Role: llm.Assistant, ToolCalls: c}
}
func result(id, text string) *llm.Message {
	return &llm.Message{Role: llm.Tool, ToolCallId: id, Text: text}
}

const (
	injected  = "<context source=\"plugin\">\nbackground bash task bash-5 finished [status: completed, exit code: 0]. Read its output with bash_output.\n</context>"
	noBash    = "I can run a command only with the tool bash, and there is none: no plugin that provides it is active."
	noMessage = "There is nothing to run: send a command, or a tool's name and its arguments as a JSON object."
)

func TestAnswer(t *testing.T) {
	ran := func(id string) *llm.Message { return calls(&llm.ToolCall{Id: id, Name: "bash", Arguments: "{}"}) }
	for _, tt := range []struct {
		name     string
		tools    []*toolsv1.Tool
		messages []*llm.Message
		want     string // "id name arguments" of a call, or the text
	}{
		{"a message is a command", bashTools, []*llm.Message{user("echo hello")},
			`call-1 bash {"command":"echo hello","description":"Run the command"}`},
		{"a command keeps its bytes", bashTools, []*llm.Message{user(" cat <<'E'\n\"x\" <&>\nE\n")},
			`call-1 bash {"command":" cat \u003c\u003c'E'\n\"x\" \u003c\u0026\u003e\nE\n","description":"Run the command"}`},
		{"a tool and a JSON object are a call", bashTools, []*llm.Message{user(`bash_output {"task_id": "bash-1"}`)},
			`call-1 bash_output {"task_id": "bash-1"}`},
		{"space around both", bashTools, []*llm.Message{user("\n bash_kill\n{\"task_id\":\n\"bash-1\"}\n")},
			"call-1 bash_kill {\"task_id\":\n\"bash-1\"}"},
		{"an unknown tool is a command", bashTools, []*llm.Message{user(`jq {"a":1}`)},
			`call-1 bash {"command":"jq {\"a\":1}","description":"Run the command"}`},
		{"broken JSON is a command", bashTools, []*llm.Message{user(`bash {"command":`)},
			`call-1 bash {"command":"bash {\"command\":","description":"Run the command"}`},
		{"JSON and more is a command", bashTools, []*llm.Message{user(`bash {} {}`)},
			`call-1 bash {"command":"bash {} {}","description":"Run the command"}`},
		{"JSON that is no object is a command", bashTools, []*llm.Message{user(`bash 3`)},
			`call-1 bash {"command":"bash 3","description":"Run the command"}`},
		{"a tool's name alone is a command", bashTools, []*llm.Message{user(`bash`)},
			`call-1 bash {"command":"bash","description":"Run the command"}`},

		{"no tool bash", []*toolsv1.Tool{{Name: "read"}}, []*llm.Message{user("echo hello")}, noBash},
		{"no tool at all", nil, []*llm.Message{user(`bash {}`)}, noBash},
		{"another tool needs no bash", []*toolsv1.Tool{{Name: "read"}}, []*llm.Message{user(`read {"path":"a"}`)}, `call-1 read {"path":"a"}`},

		{"context is no command", bashTools, []*llm.Message{user(injected)}, noMessage},
		{"context after the command", bashTools, []*llm.Message{user("pwd"), user(injected)},
			`call-2 bash {"command":"pwd","description":"Run the command"}`},
		{"context before the command", bashTools, []*llm.Message{user(injected + "\npwd")},
			`call-1 bash {"command":"pwd","description":"Run the command"}`},
		{"context that holds a closing tag", bashTools, []*llm.Message{user("<context source=\"plugin\">\n</context>\nrm -rf x\n</context>")}, noMessage},
		{"context that is not closed", bashTools, []*llm.Message{user("<context source=\"plugin\">\nrm -rf x")}, noMessage},
		{"context after the result", bashTools, []*llm.Message{user("pwd"), ran("call-1"), result("call-1", "/tmp\n[exit code: 3]"), user(injected)},
			"The command ended with exit code 3."},
		{"nothing but space", bashTools, []*llm.Message{user(" \n")}, noMessage},
		{"no messages", bashTools, nil, noMessage},
		{"the instructions alone", bashTools, []*llm.Message{{Role: llm.System, Text: "You are an agent."}}, noMessage},

		{"the next command of the session", bashTools,
			[]*llm.Message{user("a"), ran("call-1"), result("call-1", "x"), {Role: llm.Assistant, Text: "The command ended."}, user("b")},
			`call-5 bash {"command":"b","description":"Run the command"}`},
		{"an id is never used twice", bashTools, []*llm.Message{ran("call-3"), result("call-3", "x"), user("b")},
			`call-4 bash {"command":"b","description":"Run the command"}`},
		{"the call that the result answers counts", bashTools,
			[]*llm.Message{user("a"), calls(&llm.ToolCall{Id: "1", Name: "bash"}, &llm.ToolCall{Id: "2", Name: "read"}), result("1", "x"), result("2", "one")},
			"The tool answered: one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			reason, err := shell{}.Generate(t.Context(), &llm.Request{Messages: tt.messages, Tools: tt.tools}, func(e *llm.Event) error {
				if call := e.GetToolCall(); call != nil {
					got = append(got, call.GetId()+" "+call.GetName()+" "+call.GetArguments())
				} else {
					got = append(got, e.GetText())
				}
				return nil
			})
			if err != nil || reason != llm.Stop {
				t.Fatalf("finished %v, %v", reason, err)
			}
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestEnding(t *testing.T) {
	for _, tt := range []struct{ name, tool, result, want string }{
		{"no marker", "bash", "hello\n", "The command ended."},
		{"nothing printed", "bash", "(no output)", "The command ended."},
		{"an exit code", "bash", "out\n[stderr]\nerr\n[exit code: 3]", "The command ended with exit code 3."},
		{"an exit code alone", "bash", "[exit code: 127]", "The command ended with exit code 127."},
		{"a signal", "bash", "x\n[killed by signal: SIGKILL]", "The command was killed by SIGKILL."},
		{"a timeout", "bash", "x\n[timed out after 500ms]\n[killed by signal: SIGTERM]", "The command timed out after 500ms and was killed by SIGTERM."},
		{"a timeout and an exit code", "bash", "[timed out after 500ms]\n[exit code: 2]", "The command timed out after 500ms and ended with exit code 2."},
		{"a timeout and exit 0", "bash", "x\n[timed out after 500ms]", "The command timed out after 500ms and ended."},
		{"a truncated output", "bash", "x\n[output truncated; full output: /tmp/x.log]\n[exit code: 9]", "The command ended with exit code 9."},
		{"a marker that was printed", "bash", "[exit code: 3]\n", "The command ended."},
		{"a timeout that was printed earlier", "bash", "[timed out after 5ms]\nmore\n[exit code: 1]", "The command ended with exit code 1."},
		{"a marker in the middle of a line", "bash", "say [exit code: 3]", "The command ended."},
		{"an error", "bash", "Error: working directory does not exist: /tmp/gone", "The tool answered: Error: working directory does not exist: /tmp/gone"},
		{"an error that was printed", "bash", "Error: x\n[exit code: 1]", "The command ended with exit code 1."},
		{"a background start", "bash", "started background task bash-1", "The command was started in the background as task bash-1."},
		{"a background start that was printed", "bash", "started background task bash-1\n", "The command ended."},

		{"a running task", "bash_output", "one\n[status: running]", "The task is running."},
		{"a task that completed", "bash_output", "(no new output)\n[status: completed, exit code: 4]", "The task ended with exit code 4."},
		{"a task killed by a signal", "bash_output", "[status: killed by SIGTERM]", "The task was killed by SIGTERM."},
		{"a task that was killed", "bash_output", "[status: killed]", "The task was killed."},
		{"an unknown task", "bash_output", `Error: unknown bash task "bash-99"`, `The tool answered: Error: unknown bash task "bash-99"`},
		{"a kill", "bash_kill", "killed background task bash-1", "The tool answered: killed background task bash-1"},

		{"another tool", "read", "one\r\ntwo\n", "The tool answered: one …"},
		{"another tool's marker", "read", "x\n[exit code: 3]", "The tool answered: x …"},
		{"a long line", "read", strings.Repeat("é", 201), "The tool answered: " + strings.Repeat("é", 200) + " …"},
		{"an empty result", "read", " \n", "The tool answered with nothing."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ending(&llm.ToolCall{Name: tt.tool}, tt.result); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestTheResultOfAnUnknownCallIsQuoted(t *testing.T) {
	if got := ending(nil, "x"); got != "The tool answered: x" {
		t.Errorf("got %q", got)
	}
}

func TestPluginServesTheSeam(t *testing.T) {
	c := llm.NewClient(plugintest.Start(t, Plugin(), plugintest.Options{}).Conn())
	var got []*llm.Event
	reason, err := c.Generate(t.Context(), &llm.Request{Messages: []*llm.Message{user("pwd")}, Tools: bashTools}, func(e *llm.Event) error {
		got = append(got, e)
		return nil
	})
	if err != nil || reason != llm.Stop || len(got) != 1 || got[0].GetToolCall().GetName() != "bash" {
		t.Errorf("got %v, %v, %v", got, reason, err)
	}
}
