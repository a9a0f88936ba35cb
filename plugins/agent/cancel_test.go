package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

func (w *world) cancel(session, prompt string) {
	w.t.Helper()
	if err := w.Cancel(w.t.Context(), session, prompt); err != nil {
		w.t.Error(err)
	}
}

// hang is a model that answers when it is cancelled.
func hang(ctx context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
	_ = emit(llm.TextEvent("thinking"))
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestACancelledPromptIsLoggedAndTheModelNotCalled(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	events, err := w.Prompt(t.Context(), agents.Prompt{SessionID: session, PromptID: "p", Content: text("hi"), Cancelled: true})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "turn", show(w.rest(events)), `
turn/start
user/message hi
session/title hi
turn/end aborted`)
	if n := w.requestCount(); n != 0 {
		t.Errorf("the model was called %d times", n)
	}
}

func TestCancelReachesAQueuedPromptAndNoOther(t *testing.T) {
	w := newWorld(t)
	w.model = func(ctx context.Context, n int, req *llm.Request, emit emit) (llm.Reason, error) {
		if n == 0 {
			return hang(ctx, n, req, emit)
		}
		return llm.Stop, emit(llm.TextEvent("ok"))
	}
	session := w.create()
	one := w.send(session, "one")
	w.until(one, "assistant/chunk")
	two, three, four := w.send(session, "two"), w.send(session, "three"), w.send(session, "four")
	w.cancel(session, "three")
	w.cancel(session, "one")
	equal(t, "one", show(w.rest(one)), `
assistant/message thinking
step/end
turn/end aborted`)
	answered := `
turn/start
user/message %s
step/start
assistant/chunk ok
assistant/message ok
step/end
turn/end completed`
	equal(t, "two", show(w.rest(two)), fmt.Sprintf(answered, "two"))
	equal(t, "three", show(w.rest(three)), `
turn/start
user/message three
turn/end aborted`)
	equal(t, "four", show(w.rest(four)), fmt.Sprintf(answered, "four"))
}

func TestCancelBeforeTheRequestIsMade(t *testing.T) {
	w := newWorld(t)
	listing := make(chan struct{})
	w.list = func(ctx context.Context) error {
		close(listing)
		<-ctx.Done()
		return ctx.Err()
	}
	session := w.create()
	events := w.send(session, "hi")
	<-listing
	w.cancel(session, "hi")
	equal(t, "turn", show(w.rest(events)), `
turn/start
user/message hi
session/title hi
turn/end aborted`)
}

func TestCancelEndsTheModelRequest(t *testing.T) {
	w := newWorld(t)
	ended := make(chan struct{})
	w.model = func(ctx context.Context, n int, req *llm.Request, emit emit) (llm.Reason, error) {
		defer close(ended)
		_ = emit(llm.ToolCallEvent(&llm.ToolCall{Id: "c1", Name: "bash"}))
		return hang(ctx, n, req, emit)
	}
	session := w.create()
	events := w.send(session, "hi")
	w.until(events, "assistant/chunk")
	w.cancel(session, "hi")
	equal(t, "turn", show(w.rest(events)), `
assistant/message thinking
step/end
turn/end aborted`)
	<-ended
}

func TestCancelAtTheEdgesOfAnAnswer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before []*llm.Event
		want   string
	}{
		{"before the first byte", nil, "step/end\nturn/end aborted"},
		{"while the request is made again", []*llm.Event{llm.RetryEvent("no route", time.Hour)}, "model/retry no route (3600000 ms)\nstep/end\nturn/end aborted"},
		{"after the last chunk", []*llm.Event{llm.TextEvent("all"), llm.UsageEvent(&llm.Usage{InputTokens: 1})}, `
assistant/chunk all
assistant/message all
usage {"input_tokens":1,"output_tokens":0}
step/end
turn/end aborted`},
		{"after the last call", []*llm.Event{llm.ToolCallEvent(&llm.ToolCall{Id: "c1", Name: "bash"})}, "step/end\nturn/end aborted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			session, cancelled := w.create(), make(chan struct{})
			w.model = func(ctx context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
				if n > 0 {
					return llm.Stop, emit(llm.TextEvent("fine"))
				}
				for _, e := range tt.before {
					if err := emit(e); err != nil {
						return 0, err
					}
				}
				w.cancel(session, "hi")
				close(cancelled)
				<-ctx.Done()
				return 0, ctx.Err()
			}
			got := show(w.rest(w.send(session, "hi")))
			<-cancelled
			if _, got, _ = strings.Cut(got, "step/start\n"); !inOrder(got, tt.want) {
				t.Errorf("turn\n%s\n\nwant\n%s", got, tt.want)
			}
			if got := show(w.rest(w.send(session, "again"))); !strings.HasSuffix(got, "turn/end completed") {
				t.Error(got)
			}
		})
	}
}

// inOrder is true when got is want, but for what a cancel may have overtaken: events of the model that were on their way.
func inOrder(got, want string) bool {
	rest := strings.Split(strings.TrimSpace(want), "\n")
	for line := range strings.SplitSeq(got, "\n") {
		at := slices.Index(rest, line)
		if at < 0 {
			return false
		}
		rest = rest[at+1:]
	}
	return len(rest) == 0
}

func TestCancelStopsTheRunningToolAndWaitsForItsResult(t *testing.T) {
	w := newWorld(t)
	w.model = asks([]string{"c1 bash {1}", "c2 bash {2}", "c3 bash {3}"})
	w.tool = func(call *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		if call.GetCallId() != "c2" {
			return echo(call, cancelled, send)
		}
		send(presented("sleep"))
		send(started())
		<-cancelled
		send(output("^C"))
		send(result("Error: command aborted"))
		return nil
	}
	session := w.create()
	events := w.send(session, "hi")
	w.until(events, "tool/result")
	w.until(events, "tool/start")
	w.cancel(session, "hi")
	equal(t, "turn", show(w.rest(events)), `
tool/output c2 ^C
tool/result c2 Error: command aborted
tool/result c3 Error: not executed: the turn was cancelled (aborted)
step/end
turn/end aborted`)
	if n := w.requestCount(); n != 1 {
		t.Errorf("the model was called %d times", n)
	}

	w.rest(w.send(session, "again"))
	equal(t, "next request", showMessages(w.request(1).GetMessages()[1:]), `
user hi
assistant  [c1 bash {1}] [c2 bash {2}] [c3 bash {3}]
tool ran {1} (c1)
tool Error: command aborted (c2)
tool Error: not executed: the turn was cancelled (c3)
user again`)
}

func TestCancelBetweenTwoCalls(t *testing.T) {
	w := newWorld(t)
	w.model = asks([]string{"c1 bash {1}", "c2 bash {2}"})
	session := w.create()
	w.tool = func(call *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		w.cancel(session, "hi") // the result is on its way already
		return echo(call, cancelled, send)
	}
	got := show(w.rest(w.send(session, "hi")))
	if !strings.HasSuffix(got, `
tool/result c1 ran {1}
tool/result c2 Error: not executed: the turn was cancelled (aborted)
step/end
turn/end aborted`) {
		t.Error(got)
	}
}

func TestACancelThatComesLateLeavesNoTrace(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	w.cancel(session, "p") // never heard of
	w.rest(w.send(session, "p"))
	w.cancel(session, "p") // over
	before := show(w.history(session))
	events := w.rest(w.send(session, "q"))
	if got := show(events); !strings.HasSuffix(got, "turn/end completed") {
		t.Error(got)
	}
	equal(t, "history", show(w.history(session)), before+"\n"+show(events))
}

func TestACancelAtAnyMomentEndsTheTurnOnce(t *testing.T) {
	w := newWorld(t)
	w.model = func(_ context.Context, _ int, req *llm.Request, emit emit) (llm.Reason, error) {
		last := req.GetMessages()[len(req.GetMessages())-1]
		if last.GetRole() == llm.Tool {
			return llm.Stop, emit(llm.TextEvent("done"))
		}
		_ = emit(llm.TextEvent("first"))
		_ = emit(llm.ToolCallEvent(&llm.ToolCall{Name: "bash", Arguments: "1"}))
		return llm.Stop, emit(llm.ToolCallEvent(&llm.ToolCall{Name: "bash", Arguments: "2"}))
	}
	w.tool = echo
	session := w.create()
	reasons := map[string]int{}
	for i := range 80 {
		prompt := fmt.Sprint("p", i)
		events := w.send(session, prompt)
		for range rand.IntN(16) { // up to this event
			if e, err := events.Next(); err != nil || e.Type == "turn/end" {
				break
			}
		}
		w.cancel(session, prompt)
		w.rest(events)
	}
	open, calls := false, map[string]bool{}
	for _, e := range w.history(session) {
		switch d := e.Data.(type) {
		case *agents.TurnStart:
			if open {
				t.Fatalf("event %d: a turn in a turn", e.Seq)
			}
			open = true
		case *agents.AssistantMessage:
			for _, c := range d.ToolCalls {
				calls[c.CallID] = true
			}
		case *agents.ToolResult:
			if !calls[d.CallID] {
				t.Fatalf("event %d answers a call that is not open", e.Seq)
			}
			delete(calls, d.CallID)
		case *agents.TurnEnd:
			if !open || len(calls) > 0 {
				t.Fatalf("event %d: turn/end with open %v, calls %v", e.Seq, open, calls)
			}
			open = false
			reasons[string(d.Reason)]++
		}
	}
	if open || reasons["completed"]+reasons["aborted"] != 80 || reasons["aborted"] == 0 {
		t.Errorf("reasons %v, open %v", reasons, open)
	}
}

func TestDeactivationDisposesOfRunningTurns(t *testing.T) {
	w := newWorld(t)
	w.model = func(ctx context.Context, n int, req *llm.Request, emit emit) (llm.Reason, error) {
		if strings.HasSuffix(req.GetMessages()[1].GetText(), "model") {
			return hang(ctx, n, req, emit)
		}
		return llm.Stop, emit(llm.ToolCallEvent(&llm.ToolCall{Id: "c1", Name: "bash"}))
	}
	w.tool = func(_ *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		send(presented("sleep"))
		send(started())
		<-cancelled
		send(result("Error: command aborted"))
		return nil
	}
	inModel, inTool := w.create(), w.create()
	model, tool := w.send(inModel, "model"), w.send(inTool, "tool")
	w.until(model, "assistant/chunk")
	queued := w.send(inModel, "queued")
	w.until(tool, "tool/start")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.instance.Stop()
	}()
	equal(t, "model", show(w.rest(model)), `
assistant/message thinking
step/end
turn/end disposed`)
	equal(t, "queued", show(w.rest(queued)), `
turn/start
user/message queued
turn/end disposed`)
	equal(t, "tool", show(w.rest(tool)), `
tool/result c1 Error: command aborted
step/end
turn/end disposed`)
	<-stopped
}

func TestAToolThatDoesNotStopHoldsNoShutdownUp(t *testing.T) {
	w := newWorld(t)
	w.model = asks([]string{"c1 bash {}", "c2 bash {}"})
	running, release := make(chan struct{}), make(chan struct{})
	w.tool = func(_ *toolsv1.Call, _ <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		send(presented("stuck"))
		send(started())
		close(running)
		<-release
		return nil
	}
	session := w.create()
	w.send(session, "hi")
	<-running
	w.instance.Retire(pluginv1.RetireRequest_REASON_SHUTDOWN)
	begin := time.Now()
	w.instance.Stop()
	close(release) // the stand-in's server does not wait for its handlers
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("stopping took %s", took)
	}
	w.start(nil)
	if _, _, err := w.Load(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	got := show(w.history(session))
	if !strings.HasSuffix(got, `
tool/start c1
tool/result c1 Error: the agent stopped before the tool did (disposed)
tool/result c2 Error: not executed: the agent stopped (disposed)
step/end
turn/end disposed`) {
		t.Error(got)
	}
}
