package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/plugins/agent"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

// crashed returns the log of a session with two turns of every kind of event, and the events in it.
func crashed(t testing.TB) []byte {
	w := newWorld(t)
	w.model = func(_ context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
		if n == 1 || n == 3 {
			return llm.Stop, emit(llm.TextEvent("grün"))
		}
		for _, e := range []*llm.Event{
			llm.ReasoningEvent("hm"), llm.TextEvent("a"), llm.TextEvent("€"), llm.UsageEvent(&llm.Usage{InputTokens: 1}),
			llm.ToolCallEvent(&llm.ToolCall{Id: fmt.Sprint("c", n), Name: "bash", Arguments: "1"}),
			llm.ToolCallEvent(&llm.ToolCall{Id: fmt.Sprint("d", n), Name: "bash", Arguments: "2"}),
		} {
			if err := emit(e); err != nil {
				return 0, err
			}
		}
		return llm.Stop, nil
	}
	w.tool = func(call *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		send(presented("first"))
		send(ask("may I?", "k"))
		<-w.answers
		return echo(call, cancelled, send)
	}
	session := w.create()
	turn := func(prompt string) {
		events := w.sendAsking(session, prompt)
		for range 2 {
			w.answer(session, w.until(events, "tool/ask").Data.(*agents.ToolAsk).CallID, agents.OutcomeAllowed)
		}
		w.rest(events)
	}
	turn("one")
	if err := w.Inject(t.Context(), session, "news", plugin, "k"); err != nil {
		t.Fatal(err)
	}
	turn("two")
	return readFile(t, w.logFile(session))
}

// TestALogCutAtAnyByteIsRepaired also pads some with what a power failure leaves.
func TestALogCutAtAnyByteIsRepaired(t *testing.T) {
	log := crashed(t)
	w := newWorld(t)
	firstLine := bytes.IndexByte(log, '\n') + 1
	repairAt := func(cut int, padding []byte) error {
		session := fmt.Sprintf("cut-%d-%d", cut, len(padding))
		w.write(session, append(bytes.Clone(log[:cut]), padding...))
		last, err := agent.LoadLog(w.state, session)
		if cut < firstLine {
			if status.Code(err) != codes.NotFound {
				return fmt.Errorf("a session that was never created: %w", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		kept := log[:bytes.LastIndexByte(log[:cut], '\n')+1]
		repaired := readFile(t, w.logFile(session))
		if !bytes.HasPrefix(repaired, kept) {
			return fmt.Errorf("whole events were lost")
		}
		if err := wellFormed(repaired, last); err != nil {
			return err
		}
		added := bytes.TrimPrefix(repaired, kept)
		if open := bytes.LastIndex(kept, []byte(`"type":"turn/start"`)) > bytes.LastIndex(kept, []byte(`"type":"turn/end"`)); open != (len(added) > 0) ||
			open && !bytes.Contains(added, []byte(`"type":"turn/end","reason":"interrupted"}`)) {
			return fmt.Errorf("repaired with %s", added)
		}
		return nil
	}
	second := bytes.LastIndex(log, []byte(`"type":"turn/start"`)) // the first turn is like it
	for cut := range len(log) + 1 {
		if cut > firstLine+100 && cut < second-100 {
			continue
		}
		if err := repairAt(cut, nil); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		cut := rapid.IntRange(0, len(log)).Draw(r, "cut")
		padding := bytes.Repeat([]byte{0}, rapid.IntRange(1, 5000).Draw(r, "zeroes"))
		if err := repairAt(cut, padding); err != nil {
			r.Fatalf("cut at %d, %d zeroes: %v", cut, len(padding), err)
		}
	})
}

// wellFormed checks numbers, turns, steps and calls of a log.
func wellFormed(log []byte, last uint64) error {
	var seq uint64
	var turn, step bool
	calls := map[string]bool{}
	asking := ""
	for line := range bytes.Lines(log) {
		e, err := agents.Decode(line)
		if err != nil {
			return err
		}
		if seq++; e.Seq != seq {
			return fmt.Errorf("event %d in line %d", e.Seq, seq)
		}
		ok := true
		switch d := e.Data.(type) {
		case *agents.TurnStart:
			ok, turn = !turn, true
		case *agents.StepStart:
			ok, step = turn && !step, true
		case *agents.AssistantMessage:
			ok = step && len(calls) == 0
			for _, c := range d.ToolCalls {
				calls[c.CallID] = true
			}
		case *agents.ToolCall, *agents.AssistantChunk, *agents.Usage:
			ok = step
		case *agents.ToolAsk:
			ok, asking = calls[d.CallID] && asking == "", d.CallID
		case *agents.ToolAnswer:
			ok, asking = asking == d.CallID, ""
		case *agents.ToolStart:
			ok = calls[d.CallID] && asking == ""
		case *agents.ToolResult:
			ok = calls[d.CallID] && asking == ""
			delete(calls, d.CallID)
		case *agents.StepEnd:
			ok, step = step && len(calls) == 0, false
		case *agents.TurnEnd:
			ok, turn = turn && !step, false
		}
		if !ok {
			return fmt.Errorf("event %d, %s, is out of place", e.Seq, e.Type)
		}
	}
	if turn || seq != last {
		return fmt.Errorf("the log ends with event %d (said to be %d), in a turn: %v", seq, last, turn)
	}
	return nil
}

func TestWhatACrashLeftOpenIsAnsweredOnce(t *testing.T) {
	log := crashed(t)
	w := newWorld(t)
	inCall := bytes.LastIndex(log, []byte(`"type":"tool/start","call_id":"c2"`))
	inCall += bytes.IndexByte(log[inCall:], '\n') + 1
	w.write("in-call", log[:inCall+10]) // and a torn line
	inAsk := bytes.LastIndex(log, []byte(`"type":"tool/ask","call_id":"d2"`))
	inAsk += bytes.IndexByte(log[inAsk:], '\n') + 1
	w.write("in-ask", log[:inAsk])
	inAnswer := bytes.LastIndex(log, []byte(`"text":"grün"`))
	w.write("in-answer", log[:inAnswer])
	for session, want := range map[string]string{
		"in-call": `
tool/start c2
tool/result c2 Tool call interrupted by a crash; no result was recorded. (interrupted)
tool/result d2 Tool call interrupted by a crash; no result was recorded. (interrupted)
step/end
turn/end interrupted`,
		"in-ask": `
tool/ask d2 permissions: may I?
tool/answer d2 cancelled
tool/result d2 Tool call interrupted by a crash; no result was recorded. (interrupted)
step/end
turn/end interrupted`,
		"in-answer": `
assistant/chunk grün
assistant/message grün
step/end
turn/end interrupted`,
	} {
		for range 2 {
			w.load(session)
			if got := show(w.history(session)); !strings.HasSuffix(got, strings.TrimSpace(want)) {
				t.Errorf("%s:\n%s", session, got)
			}
			if err := w.Close(t.Context(), session); err != nil {
				t.Fatal(err)
			}
		}
		w.load(session)
		turn := show(w.rest(w.send(session, "go on")))
		if !strings.HasSuffix(turn, "turn/end completed") {
			t.Error(turn)
		}
		if err := w.Close(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		_, last := w.load(session) // what was repaired must not swallow what was appended to it
		if got := show(w.history(session)); !strings.HasSuffix(got, strings.TrimSpace(want)+"\n"+turn) {
			t.Errorf("%s is loaded again as\n%s", session, got)
		}
		if err := wellFormed(readFile(t, w.logFile(session)), last); err != nil {
			t.Errorf("%s: %v", session, err)
		}
	}
}

func TestTheLastLineMayHaveLostBytesInTheMiddle(t *testing.T) {
	log := crashed(t)
	w := newWorld(t)
	broken := bytes.Clone(log)
	copy(broken[len(broken)-20:], make([]byte, 10))
	w.write("power", broken)
	_, last := w.load("power")
	if err := wellFormed(readFile(t, w.logFile("power")), last); err != nil {
		t.Error(err)
	}
	turn := show(w.rest(w.send("power", "go on")))
	if err := w.Close(t.Context(), "power"); err != nil {
		t.Fatal(err)
	}
	_, last = w.load("power")
	if got := show(w.history("power")); !strings.HasSuffix(got, "\n"+turn) || !strings.HasSuffix(turn, "turn/end completed") {
		t.Errorf("loaded again as\n%s", got)
	}
	if err := wellFormed(readFile(t, w.logFile("power")), last); err != nil {
		t.Error(err)
	}
}

func TestWhatIsReadIsNotRepaired(t *testing.T) {
	log := crashed(t)
	lines := bytes.SplitAfter(log, []byte("\n"))
	future := bytes.Replace(log, []byte(`"format":1`), []byte(`"format":2`), 1)
	damaged := bytes.Join([][]byte{lines[0], lines[1], []byte("{}\n"), lines[3]}, nil)
	broken := bytes.Clone(log)
	copy(broken[len(broken)-20:], make([]byte, 10))
	for _, tt := range []struct {
		name   string
		log    []byte
		after  uint64
		events int
		want   error
	}{
		{"whole", log, 0, len(lines) - 1, nil},
		{"up-to-its-end", log, uint64(len(lines) - 1), 0, nil},
		{"beyond-its-end", log, uint64(len(lines)), 0, status.Errorf(codes.OutOfRange, "session beyond-its-end has no event %d: the last is %d", len(lines), len(lines)-1)},
		{"torn", log[:len(log)-1], 0, len(lines) - 2, nil},
		{"power-failure", broken, 0, len(lines) - 2, nil},
		{"never-created", log[:20], 0, 0, status.Error(codes.NotFound, "unknown session: never-created")},
		{"future", future, 0, 0, status.Error(codes.FailedPrecondition, "read session future: its log has format 2 and this dsh reads formats up to 1; use a newer dsh")},
		{"damaged", damaged, 0, 2, status.Error(codes.FailedPrecondition, "read session damaged: FILE:3 is damaged: decode event: it has no seq or no type; repair or delete the line and what follows it")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(tt.name, tt.log)
			events, err := w.Subscribe(t.Context(), tt.name, tt.after, false)
			n := 0
			for ; err == nil; n++ {
				_, err = events.Next()
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			wantStatus(t, err, status.Code(tt.want), strings.Replace(status.Convert(tt.want).Message(), "FILE", w.logFile(tt.name), 1))
			if n-1 != tt.events {
				t.Errorf("%d events", n-1)
			}
			if got := readFile(t, w.logFile(tt.name)); !bytes.Equal(got, tt.log) {
				t.Error("the file was changed")
			}
		})
	}
	w := newWorld(t)
	_, err := w.follow("../x", 0)
	wantStatus(t, err, codes.NotFound, "unknown session: ../x")
}
