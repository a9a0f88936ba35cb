package main

import (
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk/agents"
)

func TestAPromptShowsWhatHappensWhileItHappens(t *testing.T) {
	code := 0
	var answer, activity strings.Builder
	p := &turnPrinter{answer: &answer, activity: &activity}
	for _, d := range []agents.Data{
		&agents.ModelRetry{Reason: "no route", DelayMS: 500},
		&agents.AssistantChunk{Text: "I "},
		&agents.AssistantChunk{Text: "look."},
		&agents.AssistantMessage{Text: "I look."},
		&agents.ToolCall{CallID: "c1", Presentation: agents.Presentation{Title: "List — ls"}},
		&agents.ToolOutput{CallID: "c1", Text: "a\nb"},
		&agents.ToolResult{CallID: "c1", Content: []agents.Content{{Text: "for the model"}}, Exit: &agents.Exit{Code: &code}},
		&agents.ToolCall{CallID: "c2", Presentation: agents.Presentation{Title: "nope"}},
		&agents.ToolResult{CallID: "c2", Content: []agents.Content{{Text: `Error: unknown tool "nope"`}}, IsError: true},
		&agents.TurnEnd{Reason: agents.ReasonCompleted},
	} {
		if err := p.event(agents.Event{Data: d}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := answer.String(), "I look.\n"; got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	if got, want := activity.String(), `! no route; trying again in 500ms
• List — ls
a
b
• nope
Error: unknown tool "nope"
`; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
