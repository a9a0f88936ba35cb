package acp_test

import (
	"testing"

	"github.com/dsh-go/dsh/sdk/agents"
)

func someOptions() []agents.Option {
	return []agents.Option{
		{ID: "mode", Name: "Mode", Current: "ask", Values: []agents.OptionValue{{ID: "ask", Name: "Ask", Description: "Ask first"}, {ID: "auto", Name: "Auto"}}},
		{ID: "model", Name: "Model", Current: "small", Values: []agents.OptionValue{{ID: "small", Name: "Small"}, {ID: "large", Name: "Large", Description: "Slow"}}},
	}
}

func shownOptions(mode, model string) string {
	return `[{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"` + mode +
		`","options":[{"value":"ask","name":"Ask","description":"Ask first"},{"value":"auto","name":"Auto"}]},` +
		`{"id":"model","name":"Model","category":"model","type":"select","currentValue":"` + model +
		`","options":[{"value":"small","name":"Small"},{"value":"large","name":"Large","description":"Slow"}]}]`
}

func shownModes(mode string) string {
	return `{"currentModeId":"` + mode + `","availableModes":[{"id":"ask","name":"Ask","description":"Ask first"},{"id":"auto","name":"Auto"}]}`
}

func optionsUpdate(session, mode, model string) string {
	return updateLine(session, `{"sessionUpdate":"config_option_update","configOptions":`+shownOptions(mode, model)+`}`)
}

func modeUpdate(session, mode string) string {
	return updateLine(session, `{"sessionUpdate":"current_mode_update","currentModeId":"`+mode+`"}`)
}

// withOptions opens a bridge whose session s1 has a mode and a model to choose.
func withOptions(t *testing.T, turn func(*fakeTurn) agents.TurnEnd) *editor {
	e := newEditor(t, turn)
	e.agents.options = someOptions()
	e.start()
	e.initialize(true)
	e.send(`{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"` + e.cwd + `","mcpServers":[]}}`)
	e.expect(resultLine(`"new"`, `{"sessionId":"s1","modes":`+shownModes("ask")+`,"configOptions":`+shownOptions("ask", "small")+`}`))
	return e
}

func TestOptionsComeWithTheAnswerThatOpensASession(t *testing.T) {
	e := withOptions(t, say)
	e.send(modeLine("1", "s1", "auto"))
	e.expect(resultLine("1", "{}"), optionsUpdate("s1", "auto", "small"))
	for _, method := range []string{"session/load", "session/resume"} {
		e.send(sessionLine("2", "session/close", "s1"), sessionLine("3", method, "s1"))
		e.expect(resultLine("2", "{}"), resultLine("3", `{"modes":`+shownModes("auto")+`,"configOptions":`+shownOptions("auto", "small")+`}`))
	}
	e.agents.change(func() { e.agents.options = e.agents.options[1:] }) // a mode is no longer to be chosen
	e.send(sessionLine("4", "session/close", "s1"), sessionLine("5", "session/resume", "s1"))
	e.expect(resultLine("4", "{}"))
	want := `{"configOptions":[{"id":"model","name":"Model","category":"model","type":"select","currentValue":"small",` +
		`"options":[{"value":"small","name":"Small"},{"value":"large","name":"Large","description":"Slow"}]}]}`
	e.expect(resultLine("5", want))
}

func TestModeAndOptionAreKeptInStep(t *testing.T) {
	e := withOptions(t, say)
	e.send(modeLine("1", "s1", "auto"))
	e.expect(resultLine("1", "{}"), optionsUpdate("s1", "auto", "small"))
	e.send(optionLine("2", "s1", "mode", "ask"))
	e.expect(resultLine("2", `{"configOptions":`+shownOptions("ask", "small")+`}`), modeUpdate("s1", "ask"))
	e.send(optionLine("3", "s1", "model", "large"))
	e.expect(resultLine("3", `{"configOptions":`+shownOptions("ask", "large")+`}`))
	e.send(optionLine("4", "s1", "colour", "red"))
	e.expect(errorLine("4", "-32602", `session s1 has no option \"colour\"`))
	e.quiet()
}

// A setting takes effect in its order: after the load before it, before the prompt after it, and beside the turn that runs.
func TestSettingsAndTurns(t *testing.T) {
	e := withOptions(t, sayOrHang)
	e.send(sessionLine("1", "session/close", "s1"), sessionLine("2", "session/resume", "s1"), promptLine("3", "s1", "hang"), modeLine("4", "s1", "auto"))
	e.expect(resultLine("1", "{}"), resultLine("2", `{"modes":`+shownModes("ask")+`,"configOptions":`+shownOptions("ask", "small")+`}`))
	got := map[string]bool{}
	for range 3 {
		got[e.next()] = true
	}
	for _, want := range []string{messageLine("s1", "working"), resultLine("4", "{}"), optionsUpdate("s1", "auto", "small")} {
		if !got[want] {
			t.Fatalf("got %v, want %s", got, want)
		}
	}
	for range 3 {
		e.send(modeLine("5", "s1", "ask"), optionLine("6", "s1", "model", "large"), optionLine("7", "s1", "model", "small"))
		e.expect(resultLine("5", "{}"), optionsUpdate("s1", "ask", "small"), resultLine("6", `{"configOptions":`+shownOptions("ask", "large")+`}`),
			resultLine("7", `{"configOptions":`+shownOptions("ask", "small")+`}`))
	}
	e.send(cancelLine("s1"))
	e.expect(stopLine("3", "cancelled"))
	e.send(modeLine("8", "s1", "auto"), sessionLine("9", "session/close", "s1"), modeLine("10", "s1", "ask"))
	got = map[string]bool{e.next(): true, e.next(): true, e.next(): true, e.next(): true}
	for _, want := range []string{resultLine("8", "{}"), optionsUpdate("s1", "auto", "small"), resultLine("9", "{}"), errorLine("10", "-32002", "unknown session: s1")} {
		if !got[want] {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	e.quiet()
}

func TestSomebodyElsesChoiceIsShown(t *testing.T) {
	next := make(chan struct{})
	e := withOptions(t, func(t *fakeTurn) agents.TurnEnd {
		<-next
		t.a.choose(t.s, "mode", "auto")
		<-next
		t.a.choose(t.s, "model", "large")
		return agents.TurnEnd{Reason: agents.ReasonCompleted}
	})
	e.send(promptLine("1", "s1", "go"))
	e.waitForCall("Prompt s1 go cancelled=false")
	next <- struct{}{}
	e.expect(optionsUpdate("s1", "auto", "small"), modeUpdate("s1", "auto"))
	next <- struct{}{}
	e.expect(optionsUpdate("s1", "auto", "large"), stopLine("1", "end_turn"))
	e.send(sessionLine("2", "session/close", "s1"), sessionLine("3", "session/load", "s1"))
	e.expect(resultLine("2", "{}"), updateLine("s1", `{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}`),
		resultLine("3", `{"modes":`+shownModes("auto")+`,"configOptions":`+shownOptions("auto", "large")+`}`))
}

func TestAgentThatLostTheSessionStillSets(t *testing.T) {
	e := withOptions(t, say)
	e.agents.change(func() { e.agents.sessions["s1"].live = false })
	e.send(modeLine("1", "s1", "auto"))
	e.expect(resultLine("1", "{}"), optionsUpdate("s1", "auto", "small"))
}
