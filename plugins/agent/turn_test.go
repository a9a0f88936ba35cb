package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

func TestATurnIsLoggedInOrder(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c1 bash {1}", "c2 bash {2}"}), echo
	session := w.create()
	equal(t, "turn", show(w.rest(w.send(session, "hi"))), `
turn/start
user/message hi
session/title hi
step/start
assistant/message  [c1 bash {1}] [c2 bash {2}]
tool/call c1 echo {1}
tool/start c1
tool/output c1 out
tool/result c1 ran {1}
tool/call c2 echo {2}
tool/start c2
tool/output c2 out
tool/result c2 ran {2}
step/end
step/start
assistant/chunk done
assistant/message done
step/end
turn/end completed`)
	equal(t, "second request", showMessages(w.request(1).GetMessages()), `
system be good

The working directory is `+w.cwd+`.
user hi
assistant  [c1 bash {1}] [c2 bash {2}]
tool ran {1} (c1)
tool ran {2} (c2)`)
	if got := w.request(1); got.GetSessionId() != session || len(got.GetTools()) != 1 || got.GetTools()[0].GetName() != "bash" {
		t.Errorf("request %v", got)
	}
	if call := w.calls[1]; call.GetSessionId() != session || call.GetSessionCwd() != w.cwd || call.GetCallId() != "c2" {
		t.Errorf("call %v", call)
	}
}

func TestChunksAreSeenWhileTheModelStillAnswers(t *testing.T) {
	w := newWorld(t)
	seen := make(chan struct{})
	w.model = func(ctx context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		if err := errors.Join(emit(llm.ReasoningEvent("hm")), emit(llm.TextEvent("")), emit(llm.TextEvent("a"))); err != nil {
			return 0, err
		}
		select {
		case <-seen:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		return llm.Stop, errors.Join(emit(llm.TextEvent("b")), emit(llm.UsageEvent(&llm.Usage{InputTokens: 3, OutputTokens: 2, ContextWindow: 100})))
	}
	session := w.create()
	events := w.send(session, "hi")
	w.until(events, "assistant/chunk")
	if got := w.until(events, "assistant/chunk").Data.(*agents.AssistantChunk); got.Text != "a" {
		t.Errorf("chunk %+v", got)
	}
	close(seen)
	equal(t, "rest", show(w.rest(events)), `
assistant/chunk b
assistant/message ab
usage {"input_tokens":3,"output_tokens":2,"context_window":100}
step/end
turn/end completed`)
	for _, e := range w.history(session) {
		if m, ok := e.Data.(*agents.AssistantMessage); ok && m.Reasoning != "hm" {
			t.Errorf("message %+v", m)
		}
	}
}

func TestMessagesSentInOneBurstMakeOneTurn(t *testing.T) {
	w := newWorld(t)
	both := make(chan struct{})
	w.list = func(ctx context.Context) error {
		select {
		case <-both:
		case <-ctx.Done():
		}
		return nil
	}
	session := w.create()
	first, second := w.send(session, "one"), w.send(session, "two")
	close(both)
	want := `
turn/start
user/message one
session/title one
user/message two
step/start
assistant/chunk hello
assistant/message hello
step/end
turn/end completed`
	equal(t, "first", show(w.rest(first)), want)
	equal(t, "second", show(w.rest(second)), want)
}

func TestMessagesSentDuringATurnWaitForTheNext(t *testing.T) {
	w := newWorld(t)
	sent := make(chan struct{})
	w.model = func(ctx context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
		if n == 0 {
			select {
			case <-sent:
			case <-ctx.Done():
			}
		}
		return llm.Stop, emit(llm.TextEvent(fmt.Sprint("answer ", n)))
	}
	session := w.create()
	first := w.send(session, "one")
	w.until(first, "step/start")
	second, third := w.send(session, "two"), w.send(session, "three")
	close(sent)
	equal(t, "first", show(w.rest(first)), `
assistant/chunk answer 0
assistant/message answer 0
step/end
turn/end completed`)
	want := `
turn/start
user/message two
user/message three
step/start
assistant/chunk answer 1
assistant/message answer 1
step/end
turn/end completed`
	equal(t, "second", show(w.rest(second)), want)
	equal(t, "third", show(w.rest(third)), want)
}

var plugin = agents.Source{Kind: "plugin", Plugin: "tool-bash"}

func TestAnInjectionWhileIdleIsLoggedWithoutCallingTheModel(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	for range 2 {
		if err := w.Inject(t.Context(), session, "bash-5 finished", plugin, "bash-5:finished"); err != nil {
			t.Fatal(err)
		}
	}
	w.restart()
	if _, _, err := w.Load(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if err := w.Inject(t.Context(), session, "bash-5 finished", plugin, "bash-5:finished"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // without a key each one counts
		if err := w.Inject(t.Context(), session, "note", plugin, ""); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "history", show(w.history(session)), `
session/created
context/injected bash-5 finished
context/injected note
context/injected note`)
	if n := w.requestCount(); n != 0 {
		t.Errorf("the model was called %d times", n)
	}
	w.rest(w.send(session, "hi"))
	equal(t, "request", showMessages(w.request(0).GetMessages()[1:]), `
user <context source="plugin">
bash-5 finished
</context>
user <context source="plugin">
note
</context>
user <context source="plugin">
note
</context>
user hi`)
}

func TestAnInjectionDuringACallFollowsTheResults(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	w.model = asks([]string{"c1 bash {1}", "c2 bash {2}"})
	w.tool = func(call *toolsv1.Call, _ <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		if call.GetCallId() == "c1" {
			if err := w.Inject(t.Context(), session, "news", plugin, "k"); err != nil {
				t.Error(err)
			}
		}
		return echo(call, nil, send)
	}
	w.rest(w.send(session, "hi"))
	equal(t, "second request", showMessages(w.request(1).GetMessages()[1:]), `
user hi
assistant  [c1 bash {1}] [c2 bash {2}]
tool ran {1} (c1)
tool ran {2} (c2)
user <context source="plugin">
news
</context>`)
}

func TestAFailedTurnLeavesTheSessionUsable(t *testing.T) {
	for _, tt := range []struct {
		name  string
		model func(emit emit) (llm.Reason, error)
		want  string
	}{
		{"the model fails", func(emit emit) (llm.Reason, error) {
			_ = emit(llm.TextEvent("par"))
			return 0, status.Error(codes.Unauthenticated, "the key was refused")
		}, `
assistant/chunk par
assistant/message par
step/end
turn/end error: the key was refused`},
		{"the model fails at once", func(emit) (llm.Reason, error) {
			return 0, status.Error(codes.Unavailable, "no route")
		}, `
step/end
turn/end error: no route`},
		{"the answer is cut after a call", func(emit emit) (llm.Reason, error) {
			return 0, emit(llm.ToolCallEvent(&llm.ToolCall{Id: "c1", Name: "bash"}))
		}, `
step/end
turn/end error: the model's answer was cut`},
		{"the model refuses", func(emit emit) (llm.Reason, error) {
			return llm.Refused, emit(llm.TextEvent("no"))
		}, `
assistant/chunk no
assistant/message no
step/end
turn/end error: the model refused to answer`},
		{"the model fails after it thought", func(emit emit) (llm.Reason, error) {
			_ = emit(llm.ReasoningEvent("hm"))
			return 0, status.Error(codes.Unavailable, "the answer was cut")
		}, `
assistant/chunk hm
assistant/message 
step/end
turn/end error: the answer was cut`},
		{"the model fails again and again", func(emit emit) (llm.Reason, error) {
			_ = emit(llm.RetryEvent("no route", 500*time.Millisecond))
			_ = emit(llm.RetryEvent("no route", time.Second))
			return 0, status.Error(codes.Unavailable, "no route (tried 3 times)")
		}, `
model/retry no route (500 ms)
model/retry no route (1000 ms)
step/end
turn/end error: no route (tried 3 times)`},
		{"the request is made again", func(emit emit) (llm.Reason, error) {
			return llm.Stop, errors.Join(emit(llm.RetryEvent("no route", 500*time.Millisecond)), emit(llm.TextEvent("late")))
		}, `
model/retry no route (500 ms)
assistant/chunk late
assistant/message late
step/end
turn/end completed`},
		{"the stream ends before it began", func(emit) (llm.Reason, error) { return 0, nil }, `
step/end
turn/end error: the model's answer was cut`},
		{"the stream ends in the middle", func(emit emit) (llm.Reason, error) { return 0, emit(llm.TextEvent("par")) }, `
assistant/chunk par
assistant/message par
step/end
turn/end error: the model's answer was cut`},
		{"the answer is empty", func(emit) (llm.Reason, error) { return llm.Stop, nil }, `
step/end
turn/end error: the model gave an empty answer: send the message again, or choose another model`},
		{"the answer is but a thought", func(emit emit) (llm.Reason, error) { return llm.Stop, emit(llm.ReasoningEvent("hm")) }, `
assistant/chunk hm
assistant/message 
step/end
turn/end completed`},
		{"the answer is endless", func(emit emit) (llm.Reason, error) {
			for range 9 {
				if err := emit(llm.ToolCallEvent(&llm.ToolCall{Arguments: strings.Repeat("x", 1<<20)})); err != nil {
					return 0, err
				}
			}
			return llm.Stop, nil
		}, `
step/end
turn/end error: the model's answer is larger than 8 MiB`},
		{"the answer reaches the limit", func(emit emit) (llm.Reason, error) {
			return llm.MaxTokens, errors.Join(emit(llm.TextEvent("lon")), emit(llm.ToolCallEvent(&llm.ToolCall{Id: "c1", Name: "bash", Arguments: `{"comm`})))
		}, `
assistant/chunk lon
assistant/message lon [c1 bash {"comm]
tool/result c1 Error: not executed: the answer was cut at the model's limit (max-tokens)
step/end
turn/end max-tokens`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.model = func(_ context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
				if n == 0 {
					return tt.model(emit)
				}
				return llm.Stop, emit(llm.TextEvent("fine"))
			}
			session := w.create()
			equal(t, "failed turn", show(w.rest(w.send(session, "hi"))), "turn/start\nuser/message hi\nsession/title hi\nstep/start\n"+strings.TrimSpace(tt.want))
			equal(t, "next turn", show(w.rest(w.send(session, "again"))), `
turn/start
user/message again
step/start
assistant/chunk fine
assistant/message fine
step/end
turn/end completed`)
		})
	}
}

func TestTheModelReadsEveryBlockOfAPrompt(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	events, err := w.Prompt(t.Context(), agents.Prompt{SessionID: session, PromptID: "p", Content: []agents.ContentBlock{
		{Type: agents.BlockText, Text: "look at"},
		{Type: agents.BlockResourceLink, URI: "file:///a.go", Name: "a.go"},
		{Type: agents.BlockResource, URI: "file:///b.go", MimeType: "text/x-go", Text: "package b"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.rest(events)
	equal(t, "request", w.request(0).GetMessages()[1].GetText(), `
look at

[a.go](file:///a.go)

<resource uri="file:///b.go">
package b
</resource>`)
}

func TestWhatIsNoPromptIsRefused(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	for _, tt := range []struct {
		name    string
		prompt  agents.Prompt
		code    codes.Code
		message string
	}{
		{"unknown session", agents.Prompt{SessionID: "ghost", PromptID: "p", Content: text("hi")}, codes.NotFound, "unknown session: ghost"},
		{"no content", agents.Prompt{SessionID: session, PromptID: "p"}, codes.InvalidArgument, "empty prompt"},
		{"blank content", agents.Prompt{SessionID: session, PromptID: "p", Content: text(" \n")}, codes.InvalidArgument, "empty prompt"},
		{"no id", agents.Prompt{SessionID: session, Content: text("hi")}, codes.InvalidArgument, "prompt_id is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.Prompt(t.Context(), tt.prompt)
			wantStatus(t, err, tt.code, tt.message)
		})
	}
	equal(t, "history", show(w.history(session)), "session/created")
}

func TestSessionsDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	w.model = func(ctx context.Context, _ int, req *llm.Request, emit emit) (llm.Reason, error) {
		if strings.HasPrefix(req.GetMessages()[1].GetText(), "slow") {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return llm.Stop, emit(llm.TextEvent("quick"))
	}
	slow, quick := w.create(), w.create()
	held := w.send(slow, "slow")
	w.until(held, "step/start")
	w.rest(w.send(quick, "hi"))
	if err := w.Cancel(t.Context(), slow, "slow"); err != nil {
		t.Fatal(err)
	}
	w.until(held, "turn/end")
}

func TestAConversationThatIsTooLongForARequest(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 33<<20)
	w.model = asks([]string{"c1 bash {}", "c2 bash {}"})
	w.tool = func(_ *toolsv1.Call, _ <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		send(result(long))
		return nil
	}
	events := w.rest(w.send(w.create(), "hi"))
	if got := show(events[len(events)-1:]); got != "turn/end error: the conversation is larger than 64 MiB: go on in a new session" {
		t.Error(got)
	}
}
