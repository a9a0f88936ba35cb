package llmopenai

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/dsh-go/dsh/sdk/llm"
)

// BenchmarkRequest is one request and its answer, after so many prompts with one call each.
func BenchmarkRequest(b *testing.B) {
	server := httptest.NewServer(good())
	defer server.Close()
	for _, prompts := range []int{0, 300, 3000} {
		b.Run(fmt.Sprintf("after=%d", prompts), func(b *testing.B) {
			config := defaults
			config.BaseURL, config.Model = server.URL, "tiny"
			m, err := newModel(config, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer m.transport.CloseIdleConnections()
			req := &llm.Request{Tools: conversation.GetTools()}
			for i := range prompts {
				id := fmt.Sprint("c", i)
				req.Messages = append(req.Messages,
					&llm.Message{Role: llm.User, Text: fmt.Sprint("prompt ", i)},
					&llm.Message{Role: llm.Assistant, ToolCalls: []*llm.ToolCall{{Id: id, Name: "bash", Arguments: `{"command":"ls -l","description":"List the files"}`}}},
					&llm.Message{Role: llm.Tool, ToolCallId: id, Text: "parse.go parse_test.go\nparse.go parse_test.go\n"},
					&llm.Message{Role: llm.Assistant, Text: "It is done."})
			}
			for b.Loop() {
				if _, err := m.Generate(b.Context(), req, func(*llm.Event) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
