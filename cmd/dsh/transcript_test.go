package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dsh-go/dsh/sdk/agents"
)

func TestATranscriptShowsWhatHappened(t *testing.T) {
	code := 3
	var out strings.Builder
	tr := newTranscript(&out)
	for _, d := range []agents.Data{
		&agents.SessionCreated{SessionID: "s1", Cwd: "/w"},
		&agents.SessionOption{Option: "mode", Value: "ask"},
		&agents.TurnStart{},
		&agents.UserMessage{Content: []agents.ContentBlock{
			{Type: agents.BlockText, Text: "look at\n\nthis"},
			{Type: agents.BlockResourceLink, URI: "file:///a.go", Name: "a.go"},
			{Type: agents.BlockResource, URI: "file:///b.go", Text: "package b"},
		}},
		&agents.SessionTitle{Title: "look at"},
		&agents.ContextInjected{Text: "task bash-1 finished", Source: agents.Source{Kind: "plugin", Plugin: "tool-bash"}},
		&agents.StepStart{},
		&agents.ModelRetry{Reason: "no route", DelayMS: 500},
		&agents.AssistantChunk{Text: "I "},
		&agents.AssistantMessage{Text: "I look.\n", Reasoning: "hm\nhm", ToolCalls: []agents.ToolRequest{{CallID: "c1"}, {CallID: "c2"}}},
		&agents.ToolCall{CallID: "c1", Presentation: agents.Presentation{Title: "List — ls\x1b[31m"}},
		&agents.ToolAsk{CallID: "c1", Reason: "ls reads"},
		&agents.ToolAnswer{CallID: "c1", Outcome: agents.OutcomeAllowed},
		&agents.ToolStart{CallID: "c1"},
		&agents.ToolOutput{CallID: "c1", Text: strings.Repeat("x\n", 11) + "\x1b[1mbo"},
		&agents.ToolOutput{CallID: "c1", Text: "ld\x1b[0m\x07\r\nlast\n"},
		&agents.ToolResult{CallID: "c1", Content: []agents.Content{{Text: "for the model"}}, Exit: &agents.Exit{Code: &code}},
		&agents.ToolCall{CallID: "c2", Presentation: agents.Presentation{Title: "nope"}},
		&agents.ToolResult{CallID: "c2", Content: []agents.Content{{Text: `Error: unknown tool "nope"`}}, IsError: true},
		&agents.StepEnd{},
		&agents.TurnEnd{Reason: agents.ReasonError, Error: "the key was refused"},
		&agents.TurnEnd{Reason: agents.ReasonAborted},
		&agents.TurnEnd{Reason: agents.ReasonCompleted},
		nil, // of a type that is not known
	} {
		if err := tr.event(agents.Event{Data: d}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.flush(); err != nil {
		t.Fatal(err)
	}
	want := `session s1 in /w

! mode: ask

> look at
>
> this
> [a.go](file:///a.go)
> [file:///b.go, embedded]

! context from tool-bash: task bash-1 finished

! no route; tried again after 500ms

~ hm
~ hm

I look.

• List — ls
  allowed: ls reads
  │ … 3 earlier lines
` + strings.Repeat("  │ x\n", 8) + `  │ bold
  │ last
  exit code: 3

• nope
  │ Error: unknown tool "nope"

! the turn failed: the key was refused

! the turn ended: aborted
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTheListTellsTheTimeOfHere(t *testing.T) {
	var out strings.Builder
	show, flush := tabulate(&out)
	at := time.Date(2027, 1, 2, 15, 4, 5, 0, time.Local)
	if err := show(agents.SessionInfo{ID: "s1", Title: "Fix\tthe\x1b]0;x\x07 parser", Cwd: "/w", Updated: at.UTC()}); err != nil {
		t.Fatal(err)
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	if want := "ID  UPDATED           TITLE           DIRECTORY\ns1  2027-01-02 15:04  Fix the parser  /w\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
