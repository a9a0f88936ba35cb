package llm_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

func TestAHistoryArrivesBeforeTheMessagesOfTheRequest(t *testing.T) {
	got := make(chan *llm.Request, 1)
	c := client(t, modelFunc(func(_ context.Context, req *llm.Request, _ func(*llm.Event) error) (llm.Reason, error) {
		got <- req
		return llm.Stop, nil
	}))
	messages := []*llm.Message{
		{Role: llm.System, Text: "be good"},
		{Role: llm.User, Text: strings.Repeat("é", 100_000)},
		{Role: llm.Assistant, Reasoning: "hm", ToolCalls: []*llm.ToolCall{{Id: "c1", Name: "bash", Arguments: "{}"}}},
		{Role: llm.Tool, ToolCallId: "c1"},
		{},
	}
	var h llm.History
	histories := []llm.History{h}
	for _, m := range messages {
		h.Append(m)
		histories = append(histories, h)
	}
	last := &llm.Message{Role: llm.User, Text: "last"}
	for n, h := range histories { // also those from before the original grew
		req := &llm.Request{SessionId: "s1", Model: "big", Tools: []*toolsv1.Tool{{Name: "bash"}}, Messages: []*llm.Message{last}}
		if _, err := c.Continue(t.Context(), h, req, nil); err != nil {
			t.Fatal(err)
		}
		want := proto.CloneOf(req)
		want.Messages = append(append([]*llm.Message{}, messages[:n]...), last)
		if req := <-got; !proto.Equal(req, want) {
			t.Errorf("after %d messages: %v", n, req)
		}
	}
	if h.Size() != proto.Size(&llm.Request{Messages: messages}) {
		t.Errorf("size %d", h.Size())
	}
}

// BenchmarkAppend is what a new message costs: as much in a long history as in a short one.
func BenchmarkAppend(b *testing.B) {
	m := &llm.Message{Role: llm.User, Text: strings.Repeat("x", 200)}
	var h llm.History
	for b.Loop() {
		h.Append(m)
	}
}
