package acp_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/plugins/acp"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/stdiov1"
	"github.com/dsh-go/dsh/sdk/plugintest"
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

// countingAgents counts the bytes of the logs that the bridge has taken.
type countingAgents struct {
	*fakeAgents
	taken atomic.Int64
}

func (a *countingAgents) Subscribe(r *agentsv1.SubscribeRequest, stream grpc.ServerStreamingServer[agentsv1.SubscribeResponse]) error {
	return a.fakeAgents.Subscribe(r, countingStream{stream, &a.taken})
}

type countingStream struct {
	grpc.ServerStreamingServer[agentsv1.SubscribeResponse]
	taken *atomic.Int64
}

func (s countingStream) Send(r *agentsv1.SubscribeResponse) error {
	if err := s.ServerStreamingServer.Send(r); err != nil {
		return err
	}
	for _, e := range r.GetEvents() {
		s.taken.Add(int64(len(e.GetJson())))
	}
	return nil
}

// settled waits until the bridge takes no more for a while.
func (a *countingAgents) settled(t *testing.T) int64 {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for last := int64(-1); ; {
		now := a.taken.Load()
		if now == last && now > 0 {
			return now
		}
		last = now
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("it still takes events; %d bytes so far", now)
		}
	}
}

// A long history waits for an editor that does not read, in the agent and not in the bridge, and holds up nobody else.
func TestALongReplayWaitsForTheEditorAndHoldsUpNobodyElse(t *testing.T) {
	const turns, output = 500, 42 << 10 // of ten events each; 20 MiB in all
	e := newEditor(t, say)
	counting := &countingAgents{fakeAgents: e.agents}
	e.bridge = plugintest.Start(t, acp.Plugin(), plugintest.Options{Host: e.host, Seams: func(s grpc.ServiceRegistrar) {
		stdiov1.RegisterStdioServer(s, e.stdio)
		agentsv1.RegisterAgentsServer(s, counting)
	}})
	e.initialize(true)
	e.newSession("s1")
	e.newSession("s2")
	e.send(sessionLine("1", "session/close", "s1"))
	e.expect(resultLine("1", "{}"))
	var want []string
	zero, text := 0, strings.Repeat("x", output)
	e.agents.change(func() {
		for i := range turns {
			id := fmt.Sprintf("c%d", i)
			ask, answer := fmt.Sprintf("run %d", i), fmt.Sprintf("ran %d", i)
			for _, data := range []agents.Data{
				&agents.TurnStart{}, &agents.UserMessage{Content: []agents.ContentBlock{{Type: agents.BlockText, Text: ask}}}, &agents.StepStart{},
				&agents.AssistantMessage{Text: answer}, bash(id, e.cwd), &agents.ToolStart{CallID: id}, &agents.ToolOutput{CallID: id, Text: text},
				&agents.ToolResult{CallID: id, Exit: &agents.Exit{Code: &zero}}, &agents.StepEnd{}, &agents.TurnEnd{Reason: agents.ReasonCompleted},
			} {
				e.agents.sessions["s1"].append(data)
			}
			want = append(want, ask, answer)
		}
	})

	e.stdio.change(func() { e.stdio.paused = true })
	e.send(sessionLine("2", "session/load", "s1"))
	if taken := counting.settled(t); taken > 4<<20 {
		t.Errorf("the bridge holds %d bytes of events that the editor does not take", taken)
	}
	e.send(promptLine("3", "s2", "hello"))
	e.waitForCall("Prompt s2 hello cancelled=false")
	e.agents.turns.Wait()
	e.stdio.change(func() { e.stdio.paused = false })

	var got []string
	shown, answered := 0, false
	for frame := e.next(); frame != resultLine("2", "{}"); frame = e.next() {
		var f struct {
			Params struct {
				SessionID string
				Update    struct {
					SessionUpdate string
					Content       json.RawMessage
					Meta          struct {
						Output struct{ Data string } `json:"terminal_output"`
					} `json:"_meta"`
				}
			}
		}
		if err := json.Unmarshal([]byte(frame), &f); err != nil {
			t.Fatal(err)
		}
		answered = answered || frame == stopLine("3", "end_turn")
		if f.Params.SessionID != "s1" {
			continue
		}
		u := f.Params.Update
		shown += len(u.Meta.Output.Data)
		if strings.HasSuffix(u.SessionUpdate, "_message_chunk") {
			var block struct{ Text string }
			if err := json.Unmarshal(u.Content, &block); err != nil {
				t.Fatal(err)
			}
			got = append(got, block.Text)
		}
	}
	if !slices.Equal(got, want) || shown != turns*output {
		t.Errorf("got %d messages and %d bytes of output, want %d and %d", len(got), shown, len(want), turns*output)
	}
	if !answered {
		t.Error("the other session's prompt was answered only after the load")
	}
	e.quiet()
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
