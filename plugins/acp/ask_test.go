package acp_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// asking runs a bash call that has to be asked for.
func asking(key, reason string) func(t *fakeTurn) agents.TurnEnd {
	return func(t *fakeTurn) agents.TurnEnd {
		id, zero := t.callID(), 0
		t.emit(&agents.StepStart{})
		t.emit(bash(id, t.s.cwd))
		switch t.ask(agents.ToolAsk{CallID: id, Hook: "policy", Key: key, Reason: reason}) {
		case agents.OutcomeAllowed, agents.OutcomeAllowedForSession:
			t.emit(&agents.ToolStart{CallID: id})
			t.emit(&agents.ToolResult{CallID: id, Exit: &agents.Exit{Code: &zero}})
			return agents.TurnEnd{Reason: agents.ReasonCompleted}
		case agents.OutcomeRejected:
			t.emit(&agents.ToolResult{CallID: id, IsError: true, Content: []agents.Content{{Type: "text", Text: "Error: no"}}})
			return agents.TurnEnd{Reason: agents.ReasonCompleted}
		}
		t.emit(&agents.ToolResult{CallID: id, IsError: true})
		return agents.TurnEnd{Reason: agents.ReasonAborted}
	}
}

const (
	allowOnce  = `{"optionId":"allow","name":"Allow once","kind":"allow_once"}`
	allowForIt = `{"optionId":"allow-session","name":"Allow for this session","kind":"allow_always"}`
	rejectOnce = `{"optionId":"reject","name":"Reject","kind":"reject_once"}`
)

func permissionLine(id, session, call, more string, options ...string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/request_permission","params":{"sessionId":"` + session +
		`","toolCall":{"toolCallId":"` + call + `","title":"Go — go","kind":"execute","status":"pending","rawInput":"go"` + more +
		`},"options":[` + strings.Join(options, ",") + `]}}`
}

// asked takes the next frame, which must be a permission request, and returns its id.
func (e *editor) asked(session, call string, options ...string) string {
	e.t.Helper()
	return e.askedWith(session, call, "", options...)
}

func (e *editor) askedWith(session, call, more string, options ...string) string {
	e.t.Helper()
	frame := e.next()
	var request struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal([]byte(frame), &request); err != nil {
		e.t.Fatal(err)
	}
	if want := permissionLine(string(request.ID), session, call, more, options...); frame != want || len(request.ID) < 10 {
		e.t.Fatalf("\n got %s\nwant %s", frame, want)
	}
	return string(request.ID)
}

func selected(id, option string) string {
	return resultLine(id, `{"outcome":{"outcome":"selected","optionId":"`+option+`"}}`)
}

func withdrawn(id string) string {
	return `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + id + `}}`
}

// refusedCard is a card whose call was not allowed, as the terminal shows it.
func refusedCard(session, id string) []string {
	return []string{outputCard(session, id, "Error: no"), exitedCard(session, id, "failed", "null", "null")}
}

func TestAnswersToAQuestion(t *testing.T) {
	for _, test := range []struct {
		name, answer string // of %s, the id
		outcome      agents.Outcome
	}{
		{"allow", selected("%s", "allow"), agents.OutcomeAllowed},
		{"allow for the session", selected("%s", "allow-session"), agents.OutcomeAllowedForSession},
		{"reject", selected("%s", "reject"), agents.OutcomeRejected},
		{"dismissed", resultLine("%s", `{"outcome":{"outcome":"cancelled"}}`), agents.OutcomeRejected},
		{"an option that was not offered", selected("%s", "allow_always"), agents.OutcomeRejected},
		{"an outcome that is not known", resultLine("%s", `{"outcome":{"outcome":"maybe","optionId":"allow"}}`), agents.OutcomeRejected},
		{"an option without an outcome", resultLine("%s", `{"outcome":{"optionId":"allow"}}`), agents.OutcomeRejected},
		{"nothing", resultLine("%s", `{}`), agents.OutcomeRejected},
		{"null", resultLine("%s", `null`), agents.OutcomeRejected},
		{"no object", resultLine("%s", `"allow"`), agents.OutcomeRejected},
		{"an error", errorLine("%s", "-32603", "no window"), agents.OutcomeRejected},
		{
			"an error and an approval", `{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"allow"}},"error":{"code":1,"message":""}}`,
			agents.OutcomeRejected,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEditor(t, asking("bash", "")).open()
			e.send(promptLine("1", "s1", "go"))
			e.expect(bashCard("s1", "c3", e.cwd))
			id := e.asked("s1", "c3", allowOnce, allowForIt, rejectOnce)
			e.send(fmt.Sprintf(test.answer, id), selected(id, "allow")) // what comes after the answer is ignored
			if test.outcome == agents.OutcomeRejected {
				e.expect(refusedCard("s1", "c3")...)
			} else {
				e.expect(runningCard("s1", "c3"), exitedCard("s1", "c3", "completed", "0", "null"))
			}
			e.expect(stopLine("1", "end_turn"))
			e.waitForCall("Answer s1 c3 " + string(test.outcome))
			e.send(selected(id, "allow")) // too late
			e.quiet()
			if answers := e.agents.count("Answer"); answers != 1 {
				t.Errorf("the agent got %d answers", answers)
			}
			e.waitFor("all lines are acknowledged", func() bool { return len(e.stdio.pending) == 0 })
		})
	}
}

func TestWithoutAKeyNothingCanBeAllowedForTheSession(t *testing.T) {
	e := newEditor(t, asking("", "")).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c3", e.cwd))
	id := e.asked("s1", "c3", allowOnce, rejectOnce)
	e.send(selected(id, "allow-session"))
	e.expect(refusedCard("s1", "c3")...)
	e.expect(stopLine("1", "end_turn"))
}

func TestTheReasonIsShownUntilTheAnswer(t *testing.T) {
	e := newEditor(t, asking("", "it is <new>")).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c3", e.cwd))
	id := e.askedWith("s1", "c3", `,"content":[{"type":"terminal","terminalId":"c3"},{"type":"content","content":{"type":"text","text":"it is <new>"}}]`,
		allowOnce, rejectOnce)
	e.send(selected(id, "allow"))
	e.expect(updateLine("s1", `{"sessionUpdate":"tool_call_update","content":[{"type":"terminal","terminalId":"c3"}],"toolCallId":"c3"}`),
		runningCard("s1", "c3"), exitedCard("s1", "c3", "completed", "0", "null"), stopLine("1", "end_turn"))
	e.send(sessionLine("2", "session/close", "s1"), sessionLine("3", "session/load", "s1"))
	e.expect(resultLine("2", "{}"), updateLine("s1", `{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}`),
		bashCard("s1", "c3", e.cwd), runningCard("s1", "c3"), exitedCard("s1", "c3", "completed", "0", "null"), resultLine("3", "{}"))
}

func TestQuestionsOfSessionsAreTheirOwn(t *testing.T) {
	e := newEditor(t, asking("bash", "")).open()
	e.newSession("s2")
	ids := map[string]string{}
	for _, s := range []string{"s1", "s2"} {
		e.send(promptLine(`"`+s+`"`, s, "go"))
		e.expect(bashCard(s, "c3", e.cwd))
		ids[s] = e.asked(s, "c3", allowOnce, allowForIt, rejectOnce)
	}
	if ids["s1"] == ids["s2"] {
		t.Fatal("two requests with one id")
	}
	e.send(selected(`"`+strings.Repeat("A", 26)+`"`, "allow"), selected("1", "allow")) // of nobody
	e.send(selected(ids["s2"], "allow"))
	e.expect(runningCard("s2", "c3"), exitedCard("s2", "c3", "completed", "0", "null"), stopLine(`"s2"`, "end_turn"))
	e.quiet()
	e.send(selected(ids["s1"], "reject"))
	e.expect(refusedCard("s1", "c3")...)
	e.expect(stopLine(`"s1"`, "end_turn"))
}

// Whatever the editor says after the cancel, the call does not run.
func TestCancelOfATurnThatAsks(t *testing.T) {
	e := newEditor(t, asking("bash", "")).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c3", e.cwd))
	id := e.asked("s1", "c3", allowOnce, allowForIt, rejectOnce)
	e.send(cancelLine("s1"), selected(id, "allow"))
	frame := e.next()
	if frame == withdrawn(id) { // the turn was over before the answer was read
		frame = e.next()
	}
	if want := exitedCard("s1", "c3", "failed", "null", "null"); frame != want {
		t.Fatalf("\n got %s\nwant %s", frame, want)
	}
	e.expect(stopLine("1", "cancelled"))
	e.quiet()
	if e.agents.count("Answer") > 0 {
		t.Error("the agent got the answer")
	}
}

// An editor that does not know that it must answer is told that the question is over.
func TestAQuestionThatIsOverIsWithdrawn(t *testing.T) {
	for _, test := range []struct{ name, line string }{
		{"by a cancel", cancelLine("s1")},
		{"by a cancel of the request", `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEditor(t, asking("bash", "")).open()
			e.send(promptLine("1", "s1", "go"))
			e.expect(bashCard("s1", "c3", e.cwd))
			id := e.asked("s1", "c3", allowOnce, allowForIt, rejectOnce)
			e.send(test.line)
			e.expect(withdrawn(id), exitedCard("s1", "c3", "failed", "null", "null"), stopLine("1", "cancelled"))
			e.send(errorLine(id, "-32800", "Request cancelled"))
			e.quiet()
		})
	}
}

func TestAnAgentThatCrashesWhileItAsks(t *testing.T) {
	e := newEditor(t, asking("bash", "")).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c3", e.cwd))
	id := e.asked("s1", "c3", allowOnce, allowForIt, rejectOnce)
	e.agents.change(func() { e.agents.broken = true })
	e.expect(withdrawn(id), exitedCard("s1", "c3", "failed", "null", "null"),
		errorLine("1", "-32603", `turn failed: plugin \"agent\" died: signal: killed`))
	e.send(selected(id, "allow"))
	e.quiet()
	if e.agents.count("Answer") > 0 {
		t.Error("the agent got the answer")
	}
}

func TestReloadWhileAQuestionIsOpen(t *testing.T) {
	e := newEditor(t, asking("bash", "because")).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c3", e.cwd))
	reason := `,"content":[{"type":"terminal","terminalId":"c3"},{"type":"content","content":{"type":"text","text":"because"}}]`
	id := e.askedWith("s1", "c3", reason, allowOnce, allowForIt, rejectOnce)
	for range 2 {
		old := e.bridge
		e.retire(pluginv1.RetireRequest_REASON_RELOAD)
		e.start()
		old.Stop()
		e.quiet() // it is not asked again
	}
	e.send(selected(id, "allow-session"))
	e.expect(updateLine("s1", `{"sessionUpdate":"tool_call_update","content":[{"type":"terminal","terminalId":"c3"}],"toolCallId":"c3"}`),
		runningCard("s1", "c3"), exitedCard("s1", "c3", "completed", "0", "null"), stopLine("1", "end_turn"))
	e.waitForCall("Answer s1 c3 allowed-for-session")
	e.quiet()
}

// The answer comes while nobody reads.
func TestAnswerDuringAReload(t *testing.T) {
	e := newEditor(t, asking("bash", "")).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c3", e.cwd))
	id := e.asked("s1", "c3", allowOnce, allowForIt, rejectOnce)
	old := e.bridge
	e.retire(pluginv1.RetireRequest_REASON_RELOAD)
	e.send(selected(id, "allow"))
	e.start()
	old.Stop()
	e.expect(runningCard("s1", "c3"), exitedCard("s1", "c3", "completed", "0", "null"), stopLine("1", "end_turn"))
}

func TestCrashOfTheBridgeWhileAQuestionIsOpen(t *testing.T) {
	e := newEditor(t, asking("bash", "")).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c3", e.cwd))
	id := e.asked("s1", "c3", allowOnce, allowForIt, rejectOnce)
	e.waitFor("the prompt is acknowledged", func() bool { return len(e.stdio.pending) == 0 })
	e.waitForCheckpoint(strings.Trim(id, `"`))
	e.crash(e.host.LastCheckpoint())
	e.expect(withdrawn(id), errorLine("1", "-32603", crashed))
	e.send(selected(id, "allow"))
	e.quiet()
	if e.agents.count("Answer") > 0 {
		t.Error("the agent got the answer")
	}
}
