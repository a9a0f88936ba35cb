package acp_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
)

// say answers every prompt with its text.
func say(t *fakeTurn) agents.TurnEnd {
	t.emit(&agents.StepStart{})
	t.emit(&agents.AssistantChunk{Text: t.text})
	t.emit(&agents.AssistantMessage{Text: t.text})
	t.emit(&agents.StepEnd{})
	return agents.TurnEnd{Reason: agents.ReasonCompleted}
}

// hang says "working" and waits to be cancelled.
func hang(t *fakeTurn) agents.TurnEnd {
	t.emit(&agents.StepStart{})
	t.emit(&agents.AssistantChunk{Text: "working"})
	<-t.cancelled
	return agents.TurnEnd{Reason: agents.ReasonAborted}
}

// sayOrHang hangs on the prompt "hang".
func sayOrHang(t *fakeTurn) agents.TurnEnd {
	if strings.HasPrefix(t.text, "hang") {
		return hang(t)
	}
	return say(t)
}

func TestInitialize(t *testing.T) {
	e := newEditor(t, say)
	e.config = map[string]any{"agentInfo": map[string]any{"title": "The shell", "version": "1.2.3"}}
	e.start()
	for _, version := range []string{"1", "2", "65535"} {
		e.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":` + version + `}}`)
		e.expect(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,` +
			`"promptCapabilities":{"image":false,"audio":false,"embeddedContext":true},"mcpCapabilities":{"http":false,"sse":false},` +
			`"sessionCapabilities":{"list":{},"resume":{},"close":{},"delete":{}}},"authMethods":[],` +
			`"agentInfo":{"name":"dsh","title":"The shell","version":"1.2.3"}}}`)
	}
}

func TestTheAgentIsNamedDshUnlessTheConfigSaysOtherwise(t *testing.T) {
	for want, config := range map[string]any{
		`"agentInfo":{"name":"dsh","version":"`:                 nil,
		`"agentInfo":{"name":"ours","version":"`:                map[string]any{"agentInfo": map[string]any{"name": "ours"}},
		`"agentInfo":{"name":"ours","title":"Ours","version":"`: map[string]any{"agentInfo": map[string]any{"name": "ours", "title": "Ours"}},
	} {
		e := newEditor(t, say)
		e.config = config
		e.start()
		e.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`)
		if got := e.next(); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	cwd := t.TempDir()
	tests := []struct{ name, line, want string }{
		{"bad JSON", `{"jsonrpc":"2.0","id":1,`, errorLine("null", "-32700", "parse error: unexpected end of JSON input")},
		{"no JSON at all", `hello`, errorLine("null", "-32700", "parse error: the frame is not JSON")},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}", errorLine("null", "-32700", "parse error: the frame is not UTF-8")},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"session/list"}]`, errorLine("null", "-32600", "invalid request: batches are not supported")},
		{"a number", `42`, errorLine("null", "-32600", "invalid request: the frame is not an object")},
		{"neither method nor id", `{"jsonrpc":"2.0"}`, errorLine("null", "-32600", "invalid request: the frame has neither a method nor an id")},
		{"an unknown method", `{"jsonrpc":"2.0","id":"x","method":"session/juggle","params":{}}`, errorLine(`"x"`, "-32601", "unknown method: session/juggle")},
		{"an unknown extension", `{"jsonrpc":"2.0","id":12345678901234567890,"method":"_zed/x"}`, errorLine("12345678901234567890", "-32601", "unknown method: _zed/x")},
		{"a relative cwd", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"rel","mcpServers":[]}}`, errorLine("1", "-32602", "cwd must be an absolute path: rel")},
		{"no cwd", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"mcpServers":[]}}`, errorLine("1", "-32602", "cwd must be an absolute path: it is missing")},
		{"a missing cwd", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"` + cwd + `/gone","mcpServers":[]}}`, errorLine("1", "-32602", "cwd does not exist: "+cwd+"/gone")},
		{"a file for a cwd", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/etc/passwd","mcpServers":[]}}`, errorLine("1", "-32602", "cwd is not a directory: /etc/passwd")},
		{
			"additional directories", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"` + cwd + `","additionalDirectories":["/tmp"],"mcpServers":[]}}`,
			errorLine("1", "-32602", "additionalDirectories are not supported; a session has its cwd only"),
		},
		{"params of the wrong type", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":7}}`, errorLine("1", "-32602", "invalid params: cwd must not be a JSON number")},
		{"a list by a relative cwd", `{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"cwd":"rel"}}`, errorLine("1", "-32602", "cwd must be an absolute path: rel")},
		{"a prompt for a ghost", promptLine("1", "ghost", "hello"), errorLine("1", "-32002", "unknown session: ghost")},
		{"loading a ghost", sessionLine("1", "session/load", "ghost"), errorLine("1", "-32002", "unknown session: ghost")},
		{"resuming a ghost", sessionLine("1", "session/resume", "ghost"), errorLine("1", "-32002", "unknown session: ghost")},
		{"closing a ghost", sessionLine("1", "session/close", "ghost"), errorLine("1", "-32002", "unknown session: ghost")},
		{"deleting a ghost is no error", sessionLine("1", "session/delete", "ghost"), resultLine("1", "{}")},
		{"loading what is loaded", sessionLine("1", "session/load", "s1"), errorLine("1", "-32602", "session s1 is already loaded")},
		{"resuming what is loaded", sessionLine("1", "session/resume", "s1"), errorLine("1", "-32602", "session s1 is already loaded")},
		{"loading without an id", sessionLine("1", "session/load", ""), errorLine("1", "-32602", "sessionId must be a non-empty string")},
		{"a prompt without blocks", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s1","prompt":[]}}`, errorLine("1", "-32602", "empty prompt")},
		{"a prompt without text", promptLine("1", "s1", ""), errorLine("1", "-32602", "empty prompt")},
		{
			"an image", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"see"},{"type":"image","data":"","mimeType":"image/png"}]}}`,
			errorLine("1", "-32602", `content block of type \"image\" is not supported`),
		},
		{"a mode for a ghost", modeLine("1", "ghost", "auto"), errorLine("1", "-32002", "unknown session: ghost")},
		{"no mode", `{"jsonrpc":"2.0","id":1,"method":"session/set_mode","params":{"sessionId":"s1"}}`, errorLine("1", "-32602", "the value must be a string")},
		{"no option", `{"jsonrpc":"2.0","id":1,"method":"session/set_config_option","params":{"sessionId":"s1","value":"x"}}`, errorLine("1", "-32602", "configId must be a string")},
		{
			"a boolean option", `{"jsonrpc":"2.0","id":1,"method":"session/set_config_option","params":{"sessionId":"s1","configId":"x","type":"boolean","value":true}}`,
			errorLine("1", "-32602", "invalid params: value must not be a JSON bool"),
		},
		{"an option that is not there", optionLine("1", "s1", "x", "y"), errorLine("1", "-32602", `session s1 has no option \"x\"`)},
		{
			"an embedded blob", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"resource","resource":{"uri":"file:///x","blob":"AA=="}}]}}`,
			errorLine("1", "-32602", "content block of type resource is supported with a text only"),
		},
	}
	e := newEditor(t, say).open()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e.t = t
			e.send(test.line)
			e.expect(test.want)
		})
	}
	e.t = t
	e.quiet()
}

func TestOversizedFrameIsRefusedAndTheConnectionLivesOn(t *testing.T) {
	e := newEditor(t, say).open()
	e.stdio.feedOversized(70 << 20)
	e.expect(errorLine("null", "-32600", "invalid request: the frame has 73400320 bytes; at most 64 MiB are read"))
	e.quiet()
}

func TestWhatIsNoRequestIsIgnored(t *testing.T) {
	e := newEditor(t, say).open()
	e.send("", "  ", `{"jsonrpc":"2.0","method":"session/juggle"}`, cancelLine("ghost"), cancelLine("s1"),
		`{"jsonrpc":"2.0","method":"session/cancel"}`, `{"jsonrpc":"2.0","id":99,"result":{}}`,
		`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}`)
	e.quiet()
}

func TestPromptIsAnsweredAfterItsUpdates(t *testing.T) {
	e := newEditor(t, say).open()
	for i := range 50 {
		id := fmt.Sprintf(`"p%d"`, i)
		e.send(promptLine(id, "s1", "hello"))
		e.expect(messageLine("s1", "hello"), stopLine(id, "end_turn"))
	}
	e.quiet()
}

func TestStopReasons(t *testing.T) {
	tests := []struct {
		end  agents.TurnEnd
		want string
	}{
		{agents.TurnEnd{Reason: agents.ReasonCompleted}, stopLine("1", "end_turn")},
		{agents.TurnEnd{Reason: agents.ReasonMaxTokens}, stopLine("1", "max_tokens")},
		{agents.TurnEnd{Reason: agents.ReasonAborted}, stopLine("1", "cancelled")},
		{agents.TurnEnd{Reason: agents.ReasonDisposed}, stopLine("1", "cancelled")},
		{agents.TurnEnd{Reason: agents.ReasonError, Error: "no key"}, errorLine("1", "-32603", "turn failed: no key")},
		{agents.TurnEnd{Reason: agents.ReasonInterrupted}, errorLine("1", "-32603", "turn failed: it was interrupted by a crash")},
	}
	var end agents.TurnEnd
	e := newEditor(t, func(*fakeTurn) agents.TurnEnd { return end }).open()
	for _, test := range tests {
		end = test.end
		e.send(promptLine("1", "s1", "go"))
		e.expect(test.want)
	}
}

func TestSecondPromptIsRefusedAndTheFirstUnharmed(t *testing.T) {
	e := newEditor(t, hang).open()
	e.send(promptLine("1", "s1", "first"), promptLine("2", "s1", "second"))
	frames := []string{e.next(), e.next()}
	refusal := errorLine("2", "-32602", "a prompt is already in flight for this session")
	working := messageLine("s1", "working")
	if !slices.Contains(frames, refusal) || !slices.Contains(frames, working) {
		t.Fatalf("got %s", frames)
	}
	e.send(cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"))
	e.quiet()
}

func TestCancelOfARunningTurn(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.send(cancelLine("s1"), cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"))
	e.send(promptLine("2", "s1", "again"))
	e.expect(messageLine("s1", "again"), stopLine("2", "end_turn"))
	e.quiet()
}

func TestCancelRequestOfAPrompt(t *testing.T) {
	e := newEditor(t, hang).open()
	e.send(promptLine(`"p\u0031"`, "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"p1"}}`)
	e.expect(stopLine(`"p\u0031"`, "cancelled"))
}

func TestPromptAndCancelInOneWrite(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	for range 100 {
		e.send(promptLine("1", "s1", "hang"), cancelLine("s1"))
		for frame := e.next(); ; frame = e.next() {
			if frame == stopLine("1", "cancelled") {
				break
			}
			if frame != messageLine("s1", "working") {
				t.Fatalf("got %s", frame)
			}
		}
	}
	e.send(cancelLine("s1"), promptLine("2", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("2", "end_turn"))
}

func TestCancelBeforeThePromptIsSentMakesItACancelledOne(t *testing.T) {
	e := newEditor(t, say).open()
	e.send(sessionLine("1", "session/close", "s1"))
	e.expect(resultLine("1", "{}"))
	loading := make(chan struct{})
	e.agents.load = func() { <-loading }
	e.send(sessionLine("2", "session/load", "s1"), promptLine("3", "s1", "late"), cancelLine("s1"))
	e.quiet() // the reader has seen all of them
	close(loading)
	e.expect(resultLine("2", "{}"), stopLine("3", "cancelled"))
	e.waitForCall("Prompt s1 late cancelled=true")
	e.quiet()
}

func TestCancelWhileThePromptIsBeingAccepted(t *testing.T) {
	e := newEditor(t, hang).open()
	accepting, asked := make(chan struct{}), make(chan struct{})
	e.agents.accept = func(*agentsv1.PromptRequest) { close(asked); <-accepting }
	e.send(promptLine("1", "s1", "hang"))
	<-asked
	e.send(cancelLine("s1"))
	e.quiet()
	close(accepting)
	for frame := e.next(); frame != stopLine("1", "cancelled"); frame = e.next() {
		if frame != messageLine("s1", "working") {
			t.Fatalf("got %s", frame)
		}
	}
	e.waitForCall("Prompt s1 hang cancelled=false")
	e.waitForCall("Cancel s1")
}

func TestCancelThatDoesNotSettleIsForced(t *testing.T) {
	stuck := make(chan struct{})
	e := newEditor(t, func(t *fakeTurn) agents.TurnEnd {
		t.emit(bash("c1", t.s.cwd))
		t.emit(&agents.ToolStart{CallID: "c1"})
		<-stuck
		return agents.TurnEnd{Reason: agents.ReasonAborted}
	})
	t.Cleanup(func() { close(stuck) })
	e.config = map[string]any{"cancelLimitMs": 50}
	e.open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c1", e.cwd), runningCard("s1", "c1"))
	e.send(cancelLine("s1"))
	e.expect(exitedCard("s1", "c1", "failed", "null", "null"), stopLine("1", "cancelled"))
	e.quiet()
}

func TestCancelTouchesItsOwnSessionOnly(t *testing.T) {
	e := newEditor(t, hang).open()
	e.newSession("s2")
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.send(promptLine("2", "s2", "hang"))
	e.expect(messageLine("s2", "working"))
	e.send(cancelLine("s2"))
	e.expect(stopLine("2", "cancelled"))
	e.quiet()
	e.send(cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"))
}

func bash(id, cwd string) *agents.ToolCall {
	return &agents.ToolCall{CallID: id, Name: "bash", Arguments: `{"command":"go"}`, Presentation: agents.Presentation{
		Title: "Go — go", Kind: "execute", RawInput: json.RawMessage(`"go"`), Terminal: &agents.Terminal{Cwd: cwd},
	}}
}

func bashCard(session, id, cwd string) string {
	return updateLine(session, `{"sessionUpdate":"tool_call","content":[{"type":"terminal","terminalId":"`+id+`"}],"toolCallId":"`+id+
		`","title":"Go — go","kind":"execute","status":"pending","rawInput":"go","_meta":{"terminal_info":{"terminal_id":"`+id+`","cwd":"`+cwd+`"}}}`)
}

func runningCard(session, id string) string {
	return updateLine(session, `{"sessionUpdate":"tool_call_update","toolCallId":"`+id+`","status":"in_progress"}`)
}

func outputCard(session, id, data string) string {
	return updateLine(session, `{"sessionUpdate":"tool_call_update","toolCallId":"`+id+
		`","_meta":{"terminal_output":{"terminal_id":"`+id+`","data":"`+data+`"}}}`)
}

func exitedCard(session, id, status, code, signal string) string {
	return updateLine(session, `{"sessionUpdate":"tool_call_update","toolCallId":"`+id+`","status":"`+status+
		`","_meta":{"terminal_exit":{"terminal_id":"`+id+`","exit_code":`+code+`,"signal":`+signal+`}}}`)
}

// command runs a bash call that prints, and says a line.
func command(t *fakeTurn) agents.TurnEnd {
	id, exit := t.callID(), 5
	t.emit(&agents.StepStart{})
	t.emit(&agents.AssistantChunk{Reasoning: "hm"})
	t.emit(bash(id, t.s.cwd))
	t.emit(&agents.ToolStart{CallID: id})
	t.emit(&agents.ToolOutput{CallID: id, Text: "one\n"})
	t.emit(&agents.ToolOutput{CallID: id, Text: "two\n"})
	t.emit(&agents.ToolResult{CallID: id, Content: []agents.Content{{Type: "text", Text: "one\ntwo\n[exit code: 5]"}}, Exit: &agents.Exit{Code: &exit}})
	t.emit(&agents.StepEnd{})
	t.emit(&agents.StepStart{})
	t.emit(&agents.AssistantChunk{Text: "done"})
	t.emit(&agents.AssistantMessage{Text: "done"})
	t.emit(&agents.StepEnd{})
	return agents.TurnEnd{Reason: agents.ReasonCompleted}
}

func commandFrames(session, id, cwd string, outputs ...string) []string {
	frames := []string{
		updateLine(session, `{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}`),
		bashCard(session, id, cwd), runningCard(session, id),
	}
	for _, data := range outputs {
		frames = append(frames, outputCard(session, id, data))
	}
	return append(frames, exitedCard(session, id, "completed", "5", "null"), messageLine(session, "done"))
}

func TestLoadShowsWhatWasShownLive(t *testing.T) {
	e := newEditor(t, command).open()
	e.send(promptLine("1", "s1", "run"))
	e.expect(append(commandFrames("s1", "c3", e.cwd, `one\n`, `two\n`), stopLine("1", "end_turn"))...)
	e.send(sessionLine("2", "session/close", "s1"), sessionLine("3", "session/load", "s1"), promptLine("4", "s1", "again"))
	e.expect(resultLine("2", "{}"))
	e.expect(updateLine("s1", `{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"run"}}`))
	e.expect(append(commandFrames("s1", "c3", e.cwd, `one\ntwo\n`), resultLine("3", "{}"))...)
	e.expect(append(commandFrames("s1", "c18", e.cwd, `one\n`, `two\n`), stopLine("4", "end_turn"))...)
	e.quiet()
}

func TestResumeShowsNothing(t *testing.T) {
	e := newEditor(t, say).open()
	e.send(promptLine("1", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("1", "end_turn"))
	e.send(sessionLine("2", "session/close", "s1"), sessionLine("3", "session/resume", "s1"))
	e.expect(resultLine("2", "{}"), resultLine("3", "{}"))
	e.send(promptLine("4", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("4", "end_turn"))
}

func TestTwoLoadsAtOnce(t *testing.T) {
	e := newEditor(t, say).open()
	e.send(sessionLine("1", "session/close", "s1"))
	e.expect(resultLine("1", "{}"))
	loading := make(chan struct{})
	e.agents.load = func() { <-loading }
	e.send(sessionLine("2", "session/load", "s1"), sessionLine("3", "session/resume", "s1"))
	e.expect(errorLine("3", "-32602", "session s1 is already loaded"))
	close(loading)
	e.expect(resultLine("2", "{}"))
}

func TestLoadOfAStoredSessionThatCannotBeUsed(t *testing.T) {
	e := newEditor(t, say).open()
	e.send(sessionLine("1", "session/close", "s1"))
	e.expect(resultLine("1", "{}"))
	e.agents.change(func() { e.agents.sessions["s1"].cwd = "" })
	for range 2 {
		e.send(sessionLine("2", "session/load", "s1"))
		e.expect(errorLine("2", "-32602", "session s1 has no absolute cwd"))
	}
	e.send(promptLine("3", "s1", "hello"))
	e.expect(errorLine("3", "-32002", "unknown session: s1"))
}

func TestCloseEndsTheTurnAndNothingFollows(t *testing.T) {
	e := newEditor(t, hang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.send(sessionLine("2", "session/close", "s1"), promptLine("3", "s1", "closed"), sessionLine("4", "session/close", "s1"))
	got := map[string]int{}
	for i := range 4 {
		got[e.next()] = i
	}
	for _, want := range []string{errorLine("3", "-32002", "unknown session: s1"), errorLine("4", "-32002", "unknown session: s1")} {
		if _, ok := got[want]; !ok {
			t.Fatalf("got %v, want %s", got, want)
		}
	}
	if got[stopLine("1", "cancelled")] > got[resultLine("2", "{}")] || got[stopLine("1", "cancelled")]+got[resultLine("2", "{}")] == 0 {
		t.Fatalf("got %v", got)
	}
	e.quiet()
}

func TestDeleteEndsTheTurnAndIsIdempotent(t *testing.T) {
	e := newEditor(t, hang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.send(sessionLine("2", "session/delete", "s1"))
	e.expect(stopLine("1", "cancelled"), resultLine("2", "{}"))
	e.send(sessionLine("3", "session/delete", "s1"))
	e.expect(resultLine("3", "{}"))
	e.send(sessionLine("4", "session/load", "s1"))
	e.expect(errorLine("4", "-32002", "unknown session: s1"))
}

func TestListPagesNewestFirst(t *testing.T) {
	e := newEditor(t, say).open()
	for _, id := range []string{"s2", "s3"} {
		e.newSession(id)
	}
	listed := func(id string) string {
		return `{"sessionId":"` + id + `","cwd":"` + e.cwd + `","title":"title of ` + id + `","updatedAt":"2023-11-14T22:13:20Z"}`
	}
	e.send(`{"jsonrpc":"2.0","id":1,"method":"session/list"}`)
	e.expect(resultLine("1", `{"sessions":[`+listed("s3")+`,`+listed("s2")+`],"nextCursor":"s2"}`))
	e.send(`{"jsonrpc":"2.0","id":2,"method":"session/list","params":{"cursor":"s2"}}`)
	e.expect(resultLine("2", `{"sessions":[`+listed("s1")+`]}`))
	e.send(`{"jsonrpc":"2.0","id":3,"method":"session/list","params":{"cwd":"/nowhere","cursor":null}}`)
	e.expect(resultLine("3", `{"sessions":[]}`))
}

func TestContentOfAPromptIsPassedOnWhole(t *testing.T) {
	e := newEditor(t, say).open()
	e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"a","annotations":null},` +
		`{"type":"resource_link","uri":"file:///l","name":"l","size":3},{"type":"resource","resource":{"uri":"file:///r","mimeType":"text/plain","text":"body"}}]}}`)
	e.expect(messageLine("s1", "a"), stopLine("1", "end_turn"))
	want := []agents.ContentBlock{
		{Type: "text", Text: "a"}, {Type: "resource_link", URI: "file:///l", Name: "l"},
		{Type: "resource", URI: "file:///r", MimeType: "text/plain", Text: "body"},
	}
	if got := e.agents.sessions["s1"].log[2].Data.(*agents.UserMessage).Content; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestASlowSessionDelaysNoOther(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	e.newSession("s2")
	loading := make(chan struct{})
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.send(sessionLine("2", "session/close", "s2"))
	e.expect(resultLine("2", "{}"))
	e.agents.load = func() { <-loading }
	e.send(sessionLine("3", "session/load", "s2"))
	e.newSession("s3")
	e.send(promptLine("4", "s3", "hello"))
	e.expect(messageLine("s3", "hello"), stopLine("4", "end_turn"))
	close(loading)
	e.expect(resultLine("3", "{}"))
}

// The agent crashes and comes back: the running turn fails with the reason, the session is loaded again for the next one.
func TestAgentCrash(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.agents.change(func() { e.agents.broken = true; e.agents.sessions["s1"].live = false })
	e.expect(errorLine("1", "-32603", `turn failed: plugin \"agent\" died: signal: killed`))
	e.agents.change(func() { e.agents.broken = false; e.agents.sessions["s1"].live = false })
	e.send(promptLine("2", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("2", "end_turn"))
	e.quiet()
}

func TestAgentIsReplacedInTheMiddleOfATurn(t *testing.T) {
	e := newEditor(t, hang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.agents.load = func() { e.agents.change(func() { e.agents.broken = false }) }
	e.agents.change(func() { e.agents.broken = true })
	e.waitForCall("Subscribe s1 after 5 follow=true")
	e.send(cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"))
}
