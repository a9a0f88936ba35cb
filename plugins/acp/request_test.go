package acp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"
)

func TestPanicOfAHandlerIsAnswered(t *testing.T) {
	b := &bridge{log: hclog.NewNullLogger(), work: t.Context(), replies: make(chan func(), 1)}
	r := &request{b: b, method: methodNew}
	r.handle(func(context.Context, *request) { panic("boom") })
	if len(b.replies) != 1 {
		t.Error("no answer is on its way")
	}
	r.answered.Store(true)
	<-b.replies
	r.handle(func(context.Context, *request) { panic("boom") })
	if len(b.replies) != 0 {
		t.Error("a second answer is on its way")
	}
}

func TestPromptsOfASizeThatNoSessionCouldKeepAreRefused(t *testing.T) {
	block := func(size int) json.RawMessage {
		return json.RawMessage(`{"type":"text","text":"` + strings.Repeat("x", size) + `"}`)
	}
	if _, err := promptContent([]json.RawMessage{block(maxPromptBytes / 2), block(maxPromptBytes / 2)}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	_, err := promptContent([]json.RawMessage{block(maxPromptBytes), block(1)})
	if want := "the prompt has 16777217 bytes of text; at most 16 MiB are taken"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Lines are acknowledged up to the first that is not dealt with, whatever the order in which they are.
func TestOpenLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(1, 1000).Draw(t, "first")
		count := rapid.Uint64Range(1, 50).Draw(t, "count")
		var lines openLines
		var numbers []uint64
		for n := first; n < first+count; n++ {
			lines.take(n)
			numbers = append(numbers, n)
		}
		open := slices.Clone(numbers)
		var acked uint64
		for _, n := range rapid.Permutation(numbers).Draw(t, "order") {
			if ack := lines.done(n); ack > 0 {
				acked = ack
			}
			if again := lines.done(n); again != 0 {
				t.Fatalf("line %d is dealt with twice: ack %d", n, again)
			}
			open = slices.DeleteFunc(open, func(o uint64) bool { return o == n })
			want := first + count - 1
			if len(open) > 0 {
				want = open[0] - 1
			}
			if want >= first && acked != want {
				t.Fatalf("acknowledged up to %d, want %d", acked, want)
			}
		}
		if len(lines) != 0 {
			t.Fatalf("%d lines stay", len(lines))
		}
	})
}
