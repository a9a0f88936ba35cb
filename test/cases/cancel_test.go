package cases

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// cancellable is an editor with a session, made just now or loaded: both must be as good.
func cancellable(t *testing.T, loaded bool) (e *editor, session string) {
	h := newHome(t, configuration{})
	cwd := h.work()
	e = h.start()
	session = e.session(cwd)
	if loaded {
		expect(t, e.prompt(session, run("echo before")), "before\n")
		e.stop()
		e = h.start()
		e.load(session, cwd)
	}
	return e, session
}

func (e *editor) cancel(session string) {
	e.notify("session/cancel", map[string]any{"sessionId": session})
}

// newAndLoaded runs a test with a session that was made and with one that was loaded.
func newAndLoaded(t *testing.T, test func(t *testing.T, e *editor, session string)) {
	for name, loaded := range map[string]bool{"a new session": false, "a loaded session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, session := cancellable(t, loaded)
			test(t, e, session)
		})
	}
}

func TestCancelKillsThePipelineClosesTheCardAndAnswersOnce(t *testing.T) {
	newAndLoaded(t, func(t *testing.T, e *editor, session string) {
		seconds := odd()
		before := len(e.since(0))
		script := e.h.model.add([]call{run("(while :; do echo t; sleep 1; done)|cat; sleep " + seconds)})
		answers := e.ask(session, script)
		eventually(t, "the loop runs below the shell", func() bool { return processesWith(seconds) > 1 })
		e.cancel(session)
		if reason := e.stopReason(answers); reason != "cancelled" {
			t.Errorf("the prompt was answered %q", reason)
		}
		// Not eventually: what was cancelled is over when its end is told.
		if n := processesWith(seconds); n > 0 {
			t.Errorf("%d processes of the command are left", n)
		}
		frames := e.since(before)
		answer := slices.IndexFunc(frames, func(f frame) bool { return f.Method == "" })
		card, states := "", []string{}
		for _, f := range frames[:max(answer, 0)] {
			if u := f.Params.Update; u.Status != "" {
				card, states = u.ToolCallID, append(states, u.Status)
			}
		}
		if want := []string{"pending", "in_progress", "failed"}; !slices.Equal(states, want) {
			t.Errorf("before the answer the card was %q, want %q", states, want)
		}
		expect(t, e.prompt(session, run("echo ok")), "ok\n")
		for _, f := range e.since(before + answer + 1) { // a second answer is an error already
			if f.Params.Update.ToolCallID == card {
				t.Errorf("the card is told of after the answer: %+v", f.Params.Update)
			}
		}
	})
}

func TestACancelThatMeetsTheEndOfATurnMakesOneAnswer(t *testing.T) {
	const cancels, around, step = 200, 20 * time.Millisecond, 2 * time.Millisecond
	newAndLoaded(t, func(t *testing.T, e *editor, session string) {
		seconds := ".05" + odd()
		prompt := func() <-chan answer { return e.ask(session, e.h.model.add([]call{run("sleep " + seconds)})) }
		began := time.Now()
		if reason := e.stopReason(prompt()); reason != "end_turn" {
			t.Fatalf("the prompt was answered %q", reason)
		}
		end := time.Since(began) // where the end of a turn is expected: how busy the machine is changes
		reasons := map[string]int{}
		for range cancels {
			answers := prompt()
			<-time.After(max(0, end-around+rand.N(2*around)))
			e.cancel(session)
			reason := e.stopReason(answers)
			if reasons[reason]++; reason == "cancelled" {
				end += step
			} else {
				end -= step
			}
		}
		if reasons["end_turn"]+reasons["cancelled"] != cancels {
			t.Errorf("the prompts were answered %v", reasons)
		}
		t.Logf("answers: %v", reasons)
		// The last cancel may have been late: it must not reach this prompt, which the model sees with all that went before it.
		expect(t, e.prompt(session, run("echo ok")), "ok\n")
		if processesWith(seconds) > 0 {
			t.Error("a command is left")
		}
	})
}

var odds atomic.Int64

// odd is a number of seconds that no other test sleeps: a command with it is easy to find.
func odd() string { return fmt.Sprintf("7%d%04d", os.Getpid(), odds.Add(1)) }

// processesWith counts the processes whose command line has a text.
func processesWith(text string) (n int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline"); err == nil && strings.Contains(string(line), text) {
			n++
		}
	}
	return n
}
