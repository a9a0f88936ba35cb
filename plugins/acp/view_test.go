package acp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/sdk/agents"
)

func code(n int) *agents.Exit { return &agents.Exit{Code: &n} }

func text(s string) []agents.Content { return []agents.Content{{Type: "text", Text: s}} }

func bashCall(id string) *agents.ToolCall {
	return &agents.ToolCall{CallID: id, Name: "bash", Presentation: agents.Presentation{
		Title: "Print a line — echo hi", Kind: "execute", RawInput: json.RawMessage(`"echo hi"`), Terminal: &agents.Terminal{Cwd: "/abs"},
	}}
}

func readCall(id string) *agents.ToolCall {
	return &agents.ToolCall{CallID: id, Name: "bash_output", Presentation: agents.Presentation{
		Title: "Read output from background task bash-3", Kind: "execute", RawInput: json.RawMessage(`"bash-3"`),
	}}
}

const (
	pending = `{"sessionUpdate":"tool_call","content":[{"type":"terminal","terminalId":"c"}],"toolCallId":"c","title":"Print a line — echo hi",` +
		`"kind":"execute","status":"pending","rawInput":"echo hi","_meta":{"terminal_info":{"terminal_id":"c","cwd":"/abs"}}}`
	pendingText = `{"sessionUpdate":"tool_call","toolCallId":"c","title":"Print a line — echo hi","kind":"execute","status":"pending","rawInput":"echo hi"}`
	running     = `{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress"}`
)

func output(data string) string {
	return `{"sessionUpdate":"tool_call_update","toolCallId":"c","_meta":{"terminal_output":{"terminal_id":"c","data":"` + data + `"}}}`
}

func exited(status, code, signal string) string {
	return `{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"` + status +
		`","_meta":{"terminal_exit":{"terminal_id":"c","exit_code":` + code + `,"signal":` + signal + `}}}`
}

func finished(status, text string) string {
	return `{"sessionUpdate":"tool_call_update","content":[{"type":"content","content":{"type":"text","text":"` + text +
		`"}}],"toolCallId":"c","status":"` + status + `"}`
}

func chunk(kind, text string) string {
	return `{"sessionUpdate":"` + kind + `","content":{"type":"text","text":"` + text + `"}}`
}

func TestViewShows(t *testing.T) {
	const both, terminals, plain = "both", "terminals", "plain"
	tests := []struct {
		name   string
		client string
		replay bool
		events []agents.Data
		want   []string
	}{
		{
			name: "a command with its terminal", client: terminals,
			events: []agents.Data{
				bashCall("c"), &agents.ToolStart{CallID: "c"}, &agents.ToolOutput{CallID: "c", Text: "out\n"},
				&agents.ToolResult{CallID: "c", Content: text("out\n[exit code: 5]"), Display: text("```console"), Exit: code(5)},
			},
			want: []string{pending, running, output(`out\n`), exited("completed", "5", "null")},
		},
		{
			name: "the same for a client without terminals", client: plain,
			events: []agents.Data{
				bashCall("c"), &agents.ToolStart{CallID: "c"}, &agents.ToolOutput{CallID: "c", Text: "out\n"},
				&agents.ToolResult{CallID: "c", Content: text("out\n"), Display: text("```console\nout\n[exit code: 5]\n```"), Exit: code(5)},
			},
			want: []string{pendingText, running, finished("completed", "```console\\nout\\n[exit code: 5]\\n```")},
		},
		{
			name: "a signal", client: terminals,
			events: []agents.Data{
				bashCall("c"), &agents.ToolStart{CallID: "c"},
				&agents.ToolResult{CallID: "c", Content: text("[killed by signal: SIGKILL]"), Exit: &agents.Exit{Signal: "SIGKILL"}},
			},
			want: []string{pending, running, exited("completed", "null", `"SIGKILL"`)},
		},
		{
			name: "an error in place of an exit says why in the terminal", client: terminals,
			events: []agents.Data{
				bashCall("c"), &agents.ToolStart{CallID: "c"}, &agents.ToolOutput{CallID: "c", Text: "half"},
				&agents.ToolResult{CallID: "c", Content: text("Error: command aborted"), IsError: true},
			},
			want: []string{pending, running, output("half"), output(`\nError: command aborted`), exited("failed", "null", "null")},
		},
		{
			name: "a call that never ran", client: terminals,
			events: []agents.Data{
				bashCall("c"), &agents.ToolResult{CallID: "c", Content: text("Error: not run"), IsError: true},
			},
			want: []string{pending, output("Error: not run"), exited("failed", "null", "null")},
		},
		{
			name: "a result without a start was running all the same", client: both,
			events: []agents.Data{readCall("c"), &agents.ToolResult{CallID: "c", Content: text("done")}},
			want: []string{
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"Read output from background task bash-3","kind":"execute","status":"pending","rawInput":"bash-3"}`,
				running, finished("completed", "done"),
			},
		},
		{
			name: "a failed call without a terminal", client: both,
			events: []agents.Data{
				readCall("c"), &agents.ToolStart{CallID: "c"},
				&agents.ToolResult{CallID: "c", Content: text("Error: unknown"), Display: text("```console\nError: unknown\n```"), IsError: true},
			},
			want: []string{
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"Read output from background task bash-3","kind":"execute","status":"pending","rawInput":"bash-3"}`,
				running, finished("failed", "```console\\nError: unknown\\n```"),
			},
		},
		{
			name: "arguments rewritten by a hook change the card", client: terminals,
			events: []agents.Data{
				bashCall("c"),
				&agents.ToolCall{CallID: "c", Presentation: agents.Presentation{Title: "other", Kind: "execute", RawInput: json.RawMessage(`"ls"`)}},
				&agents.ToolStart{CallID: "c"}, &agents.ToolResult{CallID: "c", Exit: code(0)},
			},
			want: []string{
				pending, `{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"other","kind":"execute","rawInput":"ls"}`,
				running, exited("completed", "0", "null"),
			},
		},
		{
			name: "the end of a turn closes what is open", client: terminals,
			events: []agents.Data{bashCall("c"), &agents.ToolStart{CallID: "c"}, &agents.TurnEnd{Reason: agents.ReasonError}},
			want:   []string{pending, running, exited("failed", "null", "null")},
		},
		{
			name: "and for a client without terminals", client: plain,
			events: []agents.Data{bashCall("c"), &agents.TurnEnd{Reason: agents.ReasonAborted}},
			want:   []string{pendingText, `{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed"}`},
		},
		{
			name: "what comes for a closed or unknown card is dropped", client: terminals,
			events: []agents.Data{
				&agents.ToolStart{CallID: "x"}, &agents.ToolOutput{CallID: "x", Text: "x"}, &agents.ToolResult{CallID: "x"},
				bashCall("c"), &agents.ToolStart{CallID: "c"}, &agents.ToolStart{CallID: "c"}, &agents.ToolResult{CallID: "c", Exit: code(0)},
				&agents.ToolOutput{CallID: "c", Text: "late"}, &agents.ToolResult{CallID: "c", Exit: code(1)},
			},
			want: []string{pending, running, exited("completed", "0", "null")},
		},
		{
			name: "text and thoughts as they stream, the whole message not again", client: both,
			events: []agents.Data{
				&agents.StepStart{}, &agents.AssistantChunk{Reasoning: "hm"}, &agents.AssistantChunk{Text: "a<b"},
				&agents.AssistantMessage{Reasoning: "hm", Text: "a<b"},
			},
			want: []string{chunk("agent_thought_chunk", "hm"), chunk("agent_message_chunk", "a<b")},
		},
		{
			name: "a message that did not stream", client: both,
			events: []agents.Data{
				&agents.StepStart{}, &agents.AssistantChunk{Text: "one"}, &agents.AssistantMessage{Text: "one"},
				&agents.StepStart{}, &agents.AssistantMessage{Reasoning: "hm", Text: "two"},
			},
			want: []string{chunk("agent_message_chunk", "one"), chunk("agent_thought_chunk", "hm"), chunk("agent_message_chunk", "two")},
		},
		{
			name: "the live prompt is not echoed, nor is what is no part of the conversation", client: both,
			events: []agents.Data{
				&agents.SessionCreated{}, &agents.TurnStart{}, &agents.UserMessage{Content: []agents.ContentBlock{{Type: "text", Text: "hi"}}},
				&agents.ContextInjected{Text: "x"}, &agents.Usage{}, &agents.StepEnd{}, nil, &agents.TurnEnd{},
			},
			want: nil,
		},
		{
			name: "a replay shows the prompt, block by block", client: both, replay: true,
			events: []agents.Data{&agents.UserMessage{Content: []agents.ContentBlock{
				{Type: "text", Text: "hi"}, {Type: "resource_link", URI: "file:///a", Name: "a"},
				{Type: "resource", URI: "file:///b", MimeType: "text/plain", Text: "body"},
			}}},
			want: []string{
				chunk("user_message_chunk", "hi"),
				`{"sessionUpdate":"user_message_chunk","content":{"type":"resource_link","uri":"file:///a","name":"a"}}`,
				`{"sessionUpdate":"user_message_chunk","content":{"type":"resource","resource":{"uri":"file:///b","mimeType":"text/plain","text":"body"}}}`,
			},
		},
	}
	for _, test := range tests {
		for _, client := range []string{terminals, plain} {
			if test.client != both && test.client != client {
				continue
			}
			t.Run(test.name+"/"+client, func(t *testing.T) {
				v := view{Terminals: client == terminals, replay: test.replay}
				var got []string
				for i, data := range test.events {
					for _, u := range v.show(agents.Event{Seq: uint64(i + 1), Data: data}) {
						got = append(got, encode(t, u))
					}
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(test.want, "\n     "))
				}
				if len(v.Open) > 0 && slices.ContainsFunc(test.events, func(d agents.Data) bool { _, ok := d.(*agents.TurnEnd); return ok }) {
					t.Errorf("still open: %v", v.Open)
				}
			})
		}
	}
}

func encode(t *testing.T, u update) string {
	t.Helper()
	lines, err := frames("s", []update{u})
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(string(lines[0]), `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":`)
	rest, ok2 := strings.CutSuffix(rest, "}}\n")
	if !ok || !ok2 {
		t.Fatalf("frame %s", lines[0])
	}
	return rest
}

func TestOutputIsCutIntoWholeCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := strings.Repeat(rapid.StringN(1, 40, -1).Draw(t, "piece"), rapid.IntRange(1, 3000).Draw(t, "times"))
		v := view{Terminals: true}
		v.show(agents.Event{Data: bashCall("c")})
		var joined strings.Builder
		for _, u := range v.show(agents.Event{Data: &agents.ToolOutput{CallID: "c", Text: whole}}) {
			data := u.Meta.Output.Data
			if len(data) > maxOutputBytes {
				t.Fatalf("%d bytes in one update", len(data))
			}
			if utf8.ValidString(whole) && !utf8.ValidString(data) {
				t.Fatal("a character was cut")
			}
			joined.WriteString(data)
		}
		if joined.String() != whole {
			t.Fatal("the output changed")
		}
	})
}

// Whatever the events, a client sees the rules of cards kept.
func TestCardsFollowTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := view{Terminals: rapid.Bool().Draw(t, "terminals")}
		status, exits := map[string]string{}, map[string]int{}
		check := func(updates []update) {
			for _, u := range updates {
				id := u.ToolCallID
				switch {
				case id == "":
					continue
				case u.Kind == kindCard && status[id] != "":
					t.Fatalf("second card %s", id)
				case u.Kind == kindCard:
					exits[id] = -1
					if u.Meta != nil {
						exits[id] = 0
					}
				case status[id] == "":
					t.Fatalf("update of a card that was never shown: %s", id)
				case u.Status == statusCompleted && status[id] != statusRunning:
					t.Fatalf("card %s is completed from %s", id, status[id])
				case u.Status == statusRunning && status[id] != statusPending:
					t.Fatalf("card %s runs after %s", id, status[id])
				case u.Status != "" && (status[id] == statusCompleted || status[id] == statusFailed):
					t.Fatalf("card %s goes on after %s", id, status[id])
				}
				if u.Status != "" {
					status[id] = u.Status
				}
				if u.Kind == kindCardUpdate && u.Meta != nil {
					if exits[id] != 0 {
						t.Fatalf("terminal of card %s: none, or over", id)
					}
					if u.Meta.Exit != nil {
						exits[id]++
					}
				}
			}
		}
		ids := rapid.SampledFrom([]string{"a", "b", "c"})
		used := map[string]bool{}
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			id := ids.Draw(t, "id")
			var data agents.Data
			switch rapid.IntRange(0, 5).Draw(t, "type") {
			case 0:
				if _, open := status[id]; used[id] && open && v.find(id) == nil {
					continue // ids are unique within a session
				}
				used[id] = true
				data = rapid.SampledFrom([]agents.Data{bashCall(id), readCall(id)}).Draw(t, "call")
			case 1:
				data = &agents.ToolStart{CallID: id}
			case 2:
				data = &agents.ToolOutput{CallID: id, Text: "x"}
			case 3:
				data = &agents.ToolResult{CallID: id, Content: text("r"), IsError: rapid.Bool().Draw(t, "error")}
			case 4:
				data = &agents.ToolResult{CallID: id, Content: text("r"), Exit: code(1)}
			case 5:
				data = &agents.AssistantChunk{Text: "x"}
			}
			check(v.show(agents.Event{Data: data}))
		}
		check(v.show(agents.Event{Data: &agents.TurnEnd{}}))
		for id, s := range status {
			if s != statusCompleted && s != statusFailed || exits[id] == 0 {
				t.Fatalf("card %s is %s at the end, exits %d", id, s, exits[id])
			}
		}
	})
}
