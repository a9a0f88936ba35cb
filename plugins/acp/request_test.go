package acp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
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
