package agent_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// asking is a tool whose call needs approval, with the arguments as the key.
func (w *world) asking(call *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
	send(presented("run " + call.GetArguments()))
	if !call.GetCanAsk() {
		send(result("refused: there is nobody to ask"))
		return nil
	}
	send(ask("may I?", call.GetArguments()))
	select {
	case allowed := <-w.answers:
		if !allowed {
			send(result("refused"))
			return nil
		}
	case <-cancelled:
		send(result("aborted"))
		return nil
	}
	send(started())
	send(result("ran"))
	return nil
}

// sendAsking sends a prompt whose sender can ask a person.
func (w *world) sendAsking(session, prompt string) *agents.Events {
	w.t.Helper()
	events, err := w.Prompt(w.t.Context(), agents.Prompt{SessionID: session, PromptID: prompt, Content: text(prompt), CanAsk: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

func (w *world) answer(session, call string, o agents.Outcome) {
	w.t.Helper()
	if err := w.Answer(w.t.Context(), session, call, o); err != nil {
		w.t.Error(err)
	}
}

func TestACallThatAsksWaitsForThePersonsAnswer(t *testing.T) {
	for _, tt := range []struct {
		key           string
		answer        agents.Outcome
		logged, after string
	}{
		{"k", agents.OutcomeAllowed, "allowed", "tool/start c1\ntool/result c1 ran"},
		{"k", agents.OutcomeAllowedForSession, "allowed-for-session", "tool/start c1\ntool/result c1 ran"},
		{"", agents.OutcomeAllowedForSession, "allowed", "tool/start c1\ntool/result c1 ran"},
		{"k", agents.OutcomeRejected, "rejected", "tool/result c1 refused"},
		{"k", agents.OutcomeCancelled, "rejected", "tool/result c1 refused"},
		{"k", "whatever", "rejected", "tool/result c1 refused"},
	} {
		t.Run(string(tt.answer), func(t *testing.T) {
			w := newWorld(t)
			w.model, w.tool = asks([]string{"c1 bash " + tt.key}), w.asking
			session := w.create()
			events := w.sendAsking(session, "hi")
			got := w.until(events, "tool/ask").Data.(*agents.ToolAsk)
			if want := (agents.ToolAsk{CallID: "c1", Hook: "permissions", Reason: "may I?", Key: tt.key}); *got != want {
				t.Errorf("%+v", got)
			}
			w.answer(session, "c1", tt.answer)
			equal(t, "rest", show(w.rest(events)), "tool/answer c1 "+tt.logged+"\n"+tt.after+`
step/end
step/start
assistant/chunk done
assistant/message done
step/end
turn/end completed`)
		})
	}
}

// calls are a log's events about calls, without their presentations.
func calls(events []agents.Event) string {
	var kept []agents.Event
	for _, e := range events {
		if strings.HasPrefix(e.Type, "tool/") && e.Type != "tool/call" {
			kept = append(kept, e)
		}
	}
	return show(kept)
}

func TestAnAnswerForTheSessionCoversLaterCallsWithTheSameKey(t *testing.T) {
	w := newWorld(t)
	w.model = asks([]string{"c1 bash a"}, []string{"c2 bash a", "c3 bash b"})
	w.tool = w.asking
	session, other := w.create(), w.create()
	events := w.sendAsking(session, "hi")
	w.until(events, "tool/ask")
	w.answer(session, "c1", agents.OutcomeAllowedForSession)
	if got := w.until(events, "tool/ask").Data.(*agents.ToolAsk); got.CallID != "c3" {
		t.Errorf("asked for %s", got.CallID)
	}
	w.answer(session, "c3", agents.OutcomeAllowed)
	w.rest(events)
	equal(t, "calls", calls(w.history(session)), `
tool/ask c1 permissions: may I?
tool/answer c1 allowed-for-session
tool/start c1
tool/result c1 ran
tool/answer c2 allowed-for-session
tool/start c2
tool/result c2 ran
tool/ask c3 permissions: may I?
tool/answer c3 allowed
tool/start c3
tool/result c3 ran`)

	w.restart() // the answer is part of the session, and of no other
	w.asked = 0
	w.model = asks([]string{"c4 bash a", "c5 bash b"}, nil, []string{"c6 bash a"})
	if _, _, err := w.Load(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	events = w.sendAsking(session, "again")
	if got := w.until(events, "tool/ask").Data.(*agents.ToolAsk); got.CallID != "c5" {
		t.Errorf("asked for %s", got.CallID)
	}
	w.answer(session, "c5", agents.OutcomeRejected)
	w.rest(events)
	if _, _, err := w.Load(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	events = w.sendAsking(other, "hi")
	w.until(events, "tool/ask")
	w.answer(other, "c6", agents.OutcomeRejected)
	w.rest(events)
}

func TestAnEmptyKeyCoversNothing(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c1 bash ", "c2 bash "}), w.asking
	session := w.create()
	events := w.sendAsking(session, "hi")
	for _, id := range []string{"c1", "c2"} {
		if got := w.until(events, "tool/ask").Data.(*agents.ToolAsk); got.CallID != id {
			t.Errorf("asked for %s", got.CallID)
		}
		w.answer(session, id, agents.OutcomeAllowedForSession)
	}
	w.rest(events)
}

func TestAnAnswerThatIsLateOrUnknownNeverApproves(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c1 bash a", "c2 bash b"}), w.asking
	session, other := w.create(), w.create()
	w.answer(session, "c1", agents.OutcomeAllowed) // before it asks
	wantStatus(t, w.Answer(t.Context(), "ghost", "c1", agents.OutcomeAllowed), codes.NotFound, "unknown session: ghost")
	events := w.sendAsking(session, "hi")
	w.until(events, "tool/ask")
	w.answer(other, "c1", agents.OutcomeAllowed)
	w.answer(session, "c2", agents.OutcomeAllowed)
	w.answer(session, "", agents.OutcomeAllowed)
	w.answer(session, "c1", agents.OutcomeRejected)
	w.answer(session, "c1", agents.OutcomeAllowed)
	w.until(events, "tool/ask")
	w.answer(session, "c1", agents.OutcomeAllowed)
	w.answer(session, "c2", agents.OutcomeRejected)
	w.rest(events)
	w.answer(session, "c2", agents.OutcomeAllowed)
	equal(t, "calls", calls(w.history(session)), `
tool/ask c1 permissions: may I?
tool/answer c1 rejected
tool/result c1 refused
tool/ask c2 permissions: may I?
tool/answer c2 rejected
tool/result c2 refused`)
}

func TestWithoutSomebodyToAskTheCallCannotAsk(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c1 bash a"}), w.asking
	session := w.create()
	equal(t, "calls", calls(w.rest(w.send(session, "hi"))), `tool/result c1 refused: there is nobody to ask`)
}

func TestCancellingATurnThatAsksEndsTheCall(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(w *world, session string)
		want string
	}{
		{"cancel", func(w *world, session string) { w.cancel(session, "hi") }, "turn/end aborted"},
		{"close", func(w *world, session string) {
			if err := w.Close(w.t.Context(), session); err != nil {
				w.t.Error(err)
			}
		}, "turn/end aborted"},
		{"stop", func(w *world, _ string) {
			w.instance.Retire(pluginv1.RetireRequest_REASON_SHUTDOWN)
			w.instance.Stop()
		}, "turn/end disposed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.model, w.tool = asks([]string{"c1 bash a", "c2 bash b"}), w.asking
			session := w.create()
			w.until(w.sendAsking(session, "hi"), "tool/ask")
			tt.end(w, session)
			w.restart()
			if _, _, err := w.Load(t.Context(), session); err != nil {
				t.Fatal(err)
			}
			history := w.history(session)
			got := calls(history)
			if !strings.HasPrefix(got, "tool/ask c1 permissions: may I?\ntool/answer c1 cancelled\ntool/result c1 ") || strings.Contains(got, "tool/start") {
				t.Errorf("calls\n%s", got)
			}
			if end := show(history[len(history)-1:]); end != tt.want {
				t.Errorf("it ends with %s", end)
			}
		})
	}
}

// TestAQuestionOutlivesItsAsker has the subscriber go away and another one come back, as a bridge does that is replaced.
func TestAQuestionOutlivesItsAsker(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c1 bash a"}), w.asking
	session := w.create()
	ctx, leave := context.WithCancel(t.Context())
	events, err := w.Prompt(ctx, agents.Prompt{SessionID: session, PromptID: "p", Content: text("hi"), CanAsk: true})
	if err != nil {
		t.Fatal(err)
	}
	asked := w.until(events, "tool/ask")
	leave()
	if events, err = w.Subscribe(t.Context(), session, asked.Seq, true); err != nil {
		t.Fatal(err)
	}
	w.answer(session, "c1", agents.OutcomeAllowed)
	if got := show(w.rest(events)); !strings.HasPrefix(got, "tool/answer c1 allowed\ntool/start c1\n") || !strings.HasSuffix(got, "turn/end completed") {
		t.Error(got)
	}
}

func TestAQuestionIsAnsweredThroughTheSuccessor(t *testing.T) {
	old := newWorld(t)
	old.model, old.tool = asks([]string{"c1 bash a"}), old.asking
	session := old.create()
	events := old.sendAsking(session, "hi")
	old.until(events, "tool/ask")
	w := old.reload()
	w.answer(session, "c1", agents.OutcomeAllowed)
	if got := show(old.rest(events)); !strings.HasSuffix(got, "turn/end completed") || !strings.Contains(got, "tool/start c1") {
		t.Error(got)
	}
}
