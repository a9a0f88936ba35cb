package acp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk/agents"
)

func usageLine(session string, used, size int) string {
	return updateLine(session, fmt.Sprintf(`{"sessionUpdate":"usage_update","used":%d,"size":%d}`, used, size))
}

func titleLine(session, title string) string {
	return updateLine(session, `{"sessionUpdate":"session_info_update","title":"`+title+`"}`)
}

func TestUsageAndTitle(t *testing.T) {
	e := newEditor(t, func(t *fakeTurn) agents.TurnEnd {
		t.emit(&agents.SessionTitle{Title: "The " + t.text + " title"})
		t.emit(&agents.StepStart{})
		t.emit(&agents.ModelRetry{Reason: "busy", DelayMS: 500}) // for the log only
		t.emit(&agents.AssistantChunk{Text: "a"})
		t.emit(&agents.Usage{InputTokens: 7, OutputTokens: 2}) // of a window of unknown size
		t.emit(&agents.Usage{InputTokens: 10, OutputTokens: int64(len(t.text)), ContextWindow: 1000})
		t.emit(&agents.StepEnd{})
		return agents.TurnEnd{Reason: agents.ReasonCompleted}
	}).open()
	e.send(promptLine("1", "s1", "first"))
	e.expect(titleLine("s1", "The first title"), messageLine("s1", "a"), usageLine("s1", 15, 1000), stopLine("1", "end_turn"))
	e.send(promptLine("2", "s1", "2nd"))
	e.expect(titleLine("s1", "The 2nd title"), messageLine("s1", "a"), usageLine("s1", 13, 1000), stopLine("2", "end_turn"))
	e.send(sessionLine("3", "session/close", "s1"), sessionLine("4", "session/load", "s1"))
	said := func(text string) string {
		return updateLine("s1", `{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"`+text+`"}}`)
	}
	e.expect(resultLine("3", "{}"), said("first"), messageLine("s1", "a"), said("2nd"), messageLine("s1", "a"),
		titleLine("s1", "The 2nd title"), usageLine("s1", 13, 1000), resultLine("4", "{}"))
}

// A replay puts together what came in pieces, of one text and up to 32 KiB, and nothing else.
func TestReplayPutsPiecesTogether(t *testing.T) {
	kib := strings.Repeat("x", 1023) + "\n"
	e := newEditor(t, func(t *fakeTurn) agents.TurnEnd {
		t.emit(&agents.StepStart{})
		for _, text := range []string{"a", "b"} {
			t.emit(&agents.AssistantChunk{Reasoning: text})
		}
		for _, text := range []string{"c", "d"} {
			t.emit(&agents.AssistantChunk{Text: text})
		}
		for _, id := range []string{"one", "two"} {
			t.emit(bash(id, t.s.cwd))
			t.emit(&agents.ToolStart{CallID: id})
		}
		for range 40 {
			t.emit(&agents.ToolOutput{CallID: "one", Text: kib})
		}
		t.emit(&agents.ToolOutput{CallID: "two", Text: "1"})
		t.emit(&agents.ToolOutput{CallID: "one", Text: "2"})
		t.emit(&agents.ToolResult{CallID: "one"})
		t.emit(&agents.ToolOutput{CallID: "two", Text: "3"})
		t.emit(&agents.ToolResult{CallID: "two", Content: []agents.Content{{Type: "text", Text: "4"}}})
		return agents.TurnEnd{Reason: agents.ReasonCompleted}
	}).open()
	e.send(promptLine("1", "s1", "go"))
	for e.next() != stopLine("1", "end_turn") {
	}
	e.send(sessionLine("2", "session/close", "s1"), sessionLine("3", "session/load", "s1"))
	kib = strings.ReplaceAll(kib, "\n", `\n`)
	e.expect(resultLine("2", "{}"), updateLine("s1", `{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}`),
		updateLine("s1", `{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"ab"}}`), messageLine("s1", "cd"),
		bashCard("s1", "one", e.cwd), runningCard("s1", "one"), bashCard("s1", "two", e.cwd), runningCard("s1", "two"),
		outputCard("s1", "one", strings.Repeat(kib, 32)), outputCard("s1", "one", strings.Repeat(kib, 8)), outputCard("s1", "two", "1"),
		outputCard("s1", "one", "2"), exitedCard("s1", "one", "completed", "null", "null"),
		outputCard("s1", "two", `3\n4`), exitedCard("s1", "two", "completed", "null", "null"), resultLine("3", "{}"))
}

// BenchmarkReplay loads a session of 5,000 events.
func BenchmarkReplay(b *testing.B) {
	e := newEditor(b, func(t *fakeTurn) agents.TurnEnd { return agents.TurnEnd{Reason: agents.ReasonCompleted} }).open()
	zero := 0
	e.agents.change(func() {
		s := e.agents.sessions["s1"]
		for i := 0; len(s.log) < 5000; i++ {
			id := fmt.Sprintf("c%d", i)
			for _, data := range []agents.Data{
				&agents.TurnStart{}, &agents.UserMessage{Content: []agents.ContentBlock{{Type: "text", Text: "run it"}}}, &agents.StepStart{},
				&agents.AssistantMessage{Text: "I'll run it."}, bash(id, e.cwd), &agents.ToolStart{CallID: id}, &agents.ToolOutput{CallID: id, Text: "one\n"},
				&agents.ToolResult{CallID: id, Exit: &agents.Exit{Code: &zero}}, &agents.StepEnd{}, &agents.TurnEnd{Reason: agents.ReasonCompleted},
			} {
				s.append(data)
			}
		}
	})
	updates := 0
	for b.Loop() {
		e.send(sessionLine("1", "session/close", "s1"), sessionLine("2", "session/load", "s1"))
		for frame := e.next(); frame != resultLine("2", "{}"); frame = e.next() {
			updates++
		}
	}
	b.ReportMetric(float64(updates)/b.Elapsed().Seconds(), "updates/s")
}
