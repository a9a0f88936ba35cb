package acp_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

func (e *editor) endInput() { e.stdio.change(func() { e.stdio.ended = true }) }

func TestEndOfInputSettlesEverything(t *testing.T) {
	e := newEditor(t, hang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.endInput()
	e.expect(stopLine("1", "cancelled"))
	e.waitFor("done", func() bool { return e.stdio.done })
}

func TestLastLinesBeforeTheEndOfInputAreAnswered(t *testing.T) {
	e := newEditor(t, say).open()
	e.stdio.change(func() { e.stdio.ended = true })
	e.waitFor("done", func() bool { return e.stdio.done })
	if len(e.stdio.frames) > 0 {
		t.Errorf("after the end: %q", e.stdio.frames)
	}
}

func TestEndOfInputWithATurnThatDoesNotSettle(t *testing.T) {
	stuck := make(chan struct{})
	e := newEditor(t, func(t *fakeTurn) agents.TurnEnd {
		t.emit(bash("c1", t.s.cwd))
		<-stuck
		return agents.TurnEnd{Reason: agents.ReasonAborted}
	})
	t.Cleanup(func() { close(stuck) })
	e.open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c1", e.cwd))
	start := time.Now()
	e.endInput()
	e.expect(exitedCard("s1", "c1", "failed", "null", "null"), stopLine("1", "cancelled"))
	e.waitFor("done", func() bool { return e.stdio.done })
	if took := time.Since(start); took > time.Second {
		t.Errorf("settled after %s", took)
	}
}

func TestShutdownSettlesEverything(t *testing.T) {
	e := newEditor(t, hang).open()
	for i := range 20 {
		e.newSession(fmt.Sprintf("s%d", i+2))
	}
	for i := range 20 {
		id := fmt.Sprintf("s%d", i+2)
		e.send(promptLine(`"`+id+`"`, id, "hang"))
		e.expect(messageLine(id, "working"))
	}
	e.retire(pluginv1.RetireRequest_REASON_SHUTDOWN)
	answered := map[string]bool{}
	for range 20 {
		answered[e.next()] = true
	}
	for i := range 20 {
		if want := stopLine(fmt.Sprintf(`"s%d"`, i+2), "cancelled"); !answered[want] {
			t.Errorf("no answer %s", want)
		}
	}
	if held := len(e.stdio.held); held != 0 {
		t.Error("the lease is still held")
	}
}

func TestStopWithoutRetiringSettlesToo(t *testing.T) {
	e := newEditor(t, hang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.bridge.Stop()
	e.expect(stopLine("1", "cancelled"))
}

// printing prints numbered lines until it is told to finish.
type printing struct {
	step chan struct{}
}

func (p *printing) turn(t *fakeTurn) agents.TurnEnd {
	t.emit(&agents.StepStart{})
	t.emit(bash("c1", t.s.cwd))
	t.emit(&agents.ToolStart{CallID: "c1"})
	for i := 0; ; i++ {
		select {
		case _, more := <-p.step:
			if !more {
				zero := 0
				t.emit(&agents.ToolResult{CallID: "c1", Exit: &agents.Exit{Code: &zero}})
				return agents.TurnEnd{Reason: agents.ReasonCompleted}
			}
			t.emit(&agents.ToolOutput{CallID: "c1", Text: fmt.Sprintf("%d\n", i)})
		case <-t.cancelled:
			t.emit(&agents.ToolResult{CallID: "c1", IsError: true})
			return agents.TurnEnd{Reason: agents.ReasonAborted}
		}
	}
}

func TestReloadInTheMiddleOfATurn(t *testing.T) {
	p := &printing{step: make(chan struct{})}
	e := newEditor(t, p.turn).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c1", e.cwd), runningCard("s1", "c1"))
	number := 0
	output := func() {
		e.t.Helper()
		p.step <- struct{}{}
		e.expect(outputCard("s1", "c1", fmt.Sprintf(`%d\n`, number)))
		number++
	}
	output()
	for range 3 {
		old := e.bridge
		e.retire(pluginv1.RetireRequest_REASON_RELOAD)
		p.step <- struct{}{} // while nobody watches
		e.start()
		old.Stop()
		e.expect(outputCard("s1", "c1", fmt.Sprintf(`%d\n`, number)))
		number++
		output()
	}
	e.send(promptLine("2", "s1", "second"))
	e.expect(errorLine("2", "-32602", "a prompt is already in flight for this session"))
	close(p.step)
	e.expect(exitedCard("s1", "c1", "completed", "0", "null"), stopLine("1", "end_turn"))
	e.send(sessionLine("3", "session/close", "s1"))
	e.expect(resultLine("3", "{}"))
	e.quiet()
	e.waitFor("all lines are acknowledged", func() bool { return len(e.stdio.pending) == 0 })
}

func TestCancelAfterAReload(t *testing.T) {
	p := &printing{step: make(chan struct{})}
	e := newEditor(t, p.turn).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c1", e.cwd), runningCard("s1", "c1"))
	old := e.bridge
	e.retire(pluginv1.RetireRequest_REASON_RELOAD)
	e.send(cancelLine("s1")) // while nobody reads
	e.start()
	old.Stop()
	e.expect(exitedCard("s1", "c1", "failed", "null", "null"), stopLine("1", "cancelled"))
	e.quiet()
}

func TestReloadWhileTheEditorDoesNotRead(t *testing.T) {
	p := &printing{step: make(chan struct{})}
	e := newEditor(t, p.turn).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c1", e.cwd), runningCard("s1", "c1"))
	e.stdio.change(func() { e.stdio.paused = true })
	for range 5 {
		p.step <- struct{}{}
	}
	e.send(`{"jsonrpc":"2.0","id":2,"method":"authenticate"}`)
	old := e.bridge
	e.retire(pluginv1.RetireRequest_REASON_RELOAD)
	p.step <- struct{}{}
	e.start()
	old.Stop()
	close(p.step)
	e.stdio.change(func() { e.stdio.paused = false })
	var updates []string
	answered := 0
	for len(updates) < 8 || answered < 1 {
		frame := e.next()
		if frame == resultLine("2", "{}") {
			answered++
			continue
		}
		updates = append(updates, frame)
	}
	for i := range 6 {
		if want := outputCard("s1", "c1", fmt.Sprintf(`%d\n`, i)); updates[i] != want {
			t.Errorf("update %d is %s, want %s", i, updates[i], want)
		}
	}
	if updates[6] != exitedCard("s1", "c1", "completed", "0", "null") || updates[7] != stopLine("1", "end_turn") {
		t.Errorf("the end is %s", updates[6:])
	}
	e.quiet()
}

// Even the answers that the old instance could not write any more come from the new one.
func TestReloadWithAFullPipe(t *testing.T) {
	data := strings.Repeat("x", 32<<10)
	const outputs = 20 // more than stdout may be behind
	e := newEditor(t, func(t *fakeTurn) agents.TurnEnd {
		t.emit(bash("c1", t.s.cwd))
		t.emit(&agents.ToolStart{CallID: "c1"})
		for range outputs {
			t.emit(&agents.ToolOutput{CallID: "c1", Text: data})
		}
		zero := 0
		t.emit(&agents.ToolResult{CallID: "c1", Exit: &agents.Exit{Code: &zero}})
		return agents.TurnEnd{Reason: agents.ReasonCompleted}
	}).open()
	e.send(promptLine("1", "s1", "go"))
	e.expect(bashCard("s1", "c1", e.cwd), runningCard("s1", "c1"))
	e.stdio.change(func() { e.stdio.paused = true })
	e.agents.turns.Wait()
	e.waitFor("stdout is full", func() bool { return e.stdio.total >= len(data) })
	e.send(`{"jsonrpc":"2.0","id":2,"method":"session/juggle"}`, `{"jsonrpc":"2.0","id":3,"method":"session/list"}`)
	old := e.bridge
	e.retire(pluginv1.RetireRequest_REASON_RELOAD)
	e.stdio.change(func() { e.stdio.paused = false })
	e.start()
	old.Stop()
	shown, answers := 0, map[string]int{}
	for answers[stopLine("1", "end_turn")] == 0 || len(answers) < 3 {
		frame := e.next()
		if strings.Contains(frame, "terminal_output") {
			shown++
		} else if !strings.Contains(frame, "session/update") {
			answers[frame]++
		}
	}
	if shown != outputs {
		t.Errorf("%d outputs of %d", shown, outputs)
	}
	if answers[errorLine("2", "-32601", "unknown method: session/juggle")] != 1 {
		t.Errorf("answers %v", answers)
	}
	e.quiet()
}

const crashed = "turn failed: the editor bridge crashed while it ran; what it did is in the session"

// A bridge that crashed leaves its sessions to the next one; the prompt it ran fails and can be sent again.
func TestCrashOfTheBridge(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.waitFor("the prompt is taken", func() bool { return len(e.stdio.pending) == 0 })
	e.crash(e.host.LastCheckpoint())
	e.expect(errorLine("1", "-32603", crashed))
	e.waitForCall("Cancel s1")
	e.send(promptLine("2", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("2", "end_turn"))
}

// What the editor has been told of sessions is so for the next instance, however soon the one that said it dies.
func TestAnAnswerAboutASessionHoldsAfterACrash(t *testing.T) {
	e := newEditor(t, say)
	e.start()
	e.initialize(true)
	e.crash(e.host.LastCheckpoint())
	e.newSession("s1")
	e.crash(e.host.LastCheckpoint())
	e.send(promptLine("1", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("1", "end_turn"))
	e.send(`{"jsonrpc":"2.0","id":2,"method":"session/close","params":{"sessionId":"s1"}}`)
	e.expect(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	e.crash(e.host.LastCheckpoint())
	e.send(promptLine("3", "s1", "hello"))
	e.expect(errorLine("3", "-32002", "unknown session: s1"))
}

// An answer that has reached the editor is not given again by an instance whose checkpoint still has the prompt.
func TestCrashAfterAnAnswer(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.waitFor("the prompt is taken", func() bool { return len(e.stdio.pending) == 0 })
	checkpoint := e.host.LastCheckpoint()
	e.send(cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"))
	e.crash(checkpoint)
	e.send(promptLine("2", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("2", "end_turn"))
}

// An answer that has not reached the editor is given by the next instance, and stays in the checkpoint until then.
func TestCrashBeforeAnAnswer(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	e.newSession("s2")
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.waitFor("the prompt is taken", func() bool { return len(e.stdio.pending) == 0 })
	before := e.stdio.total
	e.stdio.change(func() { e.stdio.paused = true })
	e.send(cancelLine("s1"))
	e.waitFor("the answer is on its way", func() bool { return e.stdio.total > before })
	e.send(promptLine("2", "s2", "hello")) // and the checkpoint is a new one
	e.waitForCheckpoint(`"session":"s2"`)
	e.crash(e.host.LastCheckpoint())
	e.stdio.change(func() { e.stdio.paused = false })
	got := []string{e.next(), e.next()}
	slices.Sort(got)
	want := []string{errorLine("1", "-32603", crashed), errorLine("2", "-32603", crashed)}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	e.send(promptLine("3", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("3", "end_turn"))
}

// A client that does not read holds back its turns; it grows no memory, and its input is still taken.
func TestFullPipeHoldsBackTheTurn(t *testing.T) {
	const lines, size = 600, 8 << 10
	data := strings.Repeat("x", size-1) + "\n"
	e := newEditor(t, func(t *fakeTurn) agents.TurnEnd {
		if t.text != "print" {
			return say(t)
		}
		t.emit(bash("c1", t.s.cwd))
		t.emit(&agents.ToolStart{CallID: "c1"})
		for range lines {
			t.emit(&agents.ToolOutput{CallID: "c1", Text: data})
		}
		zero := 0
		t.emit(&agents.ToolResult{CallID: "c1", Exit: &agents.Exit{Code: &zero}})
		return agents.TurnEnd{Reason: agents.ReasonCompleted}
	}).open()
	e.newSession("s2")
	e.stdio.change(func() { e.stdio.paused = true })
	e.send(promptLine("1", "s1", "print"))
	e.agents.turns.Wait() // the fake agent has produced it all
	e.send(promptLine("2", "s2", "hello"))
	e.waitForCall("Prompt s2 hello cancelled=false")
	e.stdio.mu.Lock()
	total := e.stdio.total
	e.stdio.mu.Unlock()
	if total > 1<<20 {
		t.Errorf("the host has been given %d bytes that the client does not take", total)
	}
	e.stdio.change(func() { e.stdio.paused = false })
	shown := 0
	for stops := 0; stops < 2; {
		frame := e.next()
		switch {
		case strings.Contains(frame, `"terminal_output"`):
			shown += size
		case strings.Contains(frame, `"stopReason"`):
			stops++
		}
	}
	if shown != lines*size {
		t.Errorf("shown %d bytes of %d", shown, lines*size)
	}
}

func TestThousandSessions(t *testing.T) {
	e := newEditor(t, sayOrHang).start()
	e.initialize(true)
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/new","params":{"cwd":"%s","mcpServers":[]}}`, i, e.cwd))
	}
	e.send(all...)
	for range 1000 {
		if frame := e.next(); !strings.Contains(frame, `"result":{"sessionId":"s`) {
			t.Fatalf("got %s", frame)
		}
	}
	all = all[:0]
	for i := range 1000 {
		id := fmt.Sprintf("s%d", i+1)
		all = append(all, promptLine(`"`+id+`"`, id, "hello"), cancelLine("s1"))
	}
	e.send(all...)
	stops := map[string]int{}
	for len(stops) < 1000 {
		if frame := e.next(); strings.Contains(frame, "stopReason") {
			stops[frame]++
		}
	}
	for i := 2; i <= 1000; i++ {
		if want := stopLine(fmt.Sprintf(`"s%d"`, i), "end_turn"); stops[want] != 1 {
			t.Fatalf("%d answers %s", stops[want], want)
		}
	}
	// Idle sessions are cheap: what their turns needed is gone.
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > 100; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines for 1,000 idle sessions", runtime.NumGoroutine())
		}
	}
}
