package acp_test

import (
	"fmt"
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
	if !(frames[0] == refusal && frames[1] == working || frames[0] == working && frames[1] == refusal) {
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
	e := newEditor(t, say)
	loading := make(chan struct{})
	e.open()
	e.send(sessionLine("1", "session/close", "s1"))
	e.expect(resultLine("1", "{}"))
	e.agents.accept = func(*agentsv1.PromptRequest) { <-loading }
	close(loading)
	e.stdio.change(func() { e.stdio.paused = true }) // holds back the load's answer, and with it the mailbox
	e.send(sessionLine("2", "session/load", "s1"), promptLine("3", "s1", "late"), cancelLine("s1"), `{"jsonrpc":"2.0","id":4,"method":"authenticate"}`)
	e.waitFor("all lines are acknowledged", func() bool { return len(e.stdio.pending) <= 4 })
	e.waitForCall("Load s1")
	e.stdio.change(func() { e.stdio.paused = false })
	seen := map[string]bool{}
	for range 3 {
		seen[e.next()] = true
	}
	if !seen[resultLine("2", "{}")] || !seen[stopLine("3", "cancelled")] || !seen[resultLine("4", "{}")] {
		t.Fatalf("got %v", seen)
	}
}
