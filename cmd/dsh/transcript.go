package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/agents"
)

func isUnknown(err error) bool { return status.Code(err) == codes.NotFound }

// tailLines is how much of a call's output a transcript shows.
const tailLines = 10

// transcript shows a session to people: what they wrote after "> ", what the model thought after "~ ", its text as it is, its calls
// after "• ", what else happened after "! ".
type transcript struct {
	w       *bufio.Writer
	printed bool              // something stands above
	output  []string          // of the call under way, as its terminal shows it
	ask     map[string]string // the reasons of calls that asked
}

func newTranscript(w io.Writer) *transcript {
	return &transcript{w: bufio.NewWriter(w), ask: map[string]string{}}
}

func (t *transcript) flush() error { return t.w.Flush() }

// event shows an event. Chunks are passed over: the message has them all.
func (t *transcript) event(e agents.Event) error {
	switch d := e.Data.(type) {
	case *agents.SessionCreated:
		t.line("session %s in %s", d.SessionID, d.Cwd)
	case *agents.UserMessage:
		t.block("> ", promptText(d.Content))
	case *agents.ContextInjected:
		t.block("! ", fmt.Sprintf("context from %s: %s", d.Source.Plugin, d.Text))
	case *agents.SessionOption:
		t.block("! ", fmt.Sprintf("%s: %s", d.Option, d.Value))
	case *agents.ModelRetry:
		t.block("! ", fmt.Sprintf("%s; tried again after %v", d.Reason, time.Duration(d.DelayMS)*time.Millisecond))
	case *agents.AssistantMessage:
		t.block("~ ", d.Reasoning)
		t.block("", d.Text)
	case *agents.ToolCall:
		t.output = nil
		t.block("• ", d.Presentation.Title)
	case *agents.ToolAsk:
		t.ask[d.CallID] = d.Reason
	case *agents.ToolAnswer:
		if reason, asked := t.ask[d.CallID]; asked {
			t.line("  %s: %s", d.Outcome, reason)
		}
	case *agents.ToolOutput:
		t.output = append(t.output, d.Text)
	case *agents.ToolResult:
		t.result(d)
	case *agents.TurnEnd:
		switch {
		case d.Error != "":
			t.block("! ", "the turn failed: "+d.Error)
		case d.Reason != agents.ReasonCompleted:
			t.block("! ", "the turn ended: "+string(d.Reason))
		}
	}
	_, err := t.w.Write(nil) // the first error of the writes before
	return err
}

func (t *transcript) result(d *agents.ToolResult) {
	output := strings.Join(t.output, "")
	t.output = nil
	if output == "" || d.IsError {
		var parts []string
		for _, c := range d.Content {
			parts = append(parts, c.Text)
		}
		output = strings.Join(parts, "\n")
	}
	lines := strings.Split(strings.TrimRight(plain(output), "\n"), "\n")
	if n := len(lines) - tailLines; n > 0 {
		t.line("  │ … %d earlier lines", n)
		lines = lines[n:]
	}
	for _, line := range lines {
		t.line("%s", strings.TrimRight("  │ "+line, " "))
	}
	switch x := d.Exit; {
	case x == nil:
	case x.Signal != "":
		t.line("  killed by signal: %s", x.Signal)
	case x.Code != nil:
		t.line("  exit code: %d", *x.Code)
	}
}

// block shows a text after an empty line, each of its lines after the mark; nothing when there is no text.
func (t *transcript) block(mark, text string) {
	text = strings.Trim(plain(text), "\n")
	if text == "" {
		return
	}
	if t.printed {
		t.line("")
	}
	for line := range strings.SplitSeq(text, "\n") {
		t.line("%s", strings.TrimRight(mark+line, " "))
	}
}

func (t *transcript) line(format string, args ...any) {
	fmt.Fprintf(t.w, format+"\n", args...)
	t.printed = true
}

func promptText(content []agents.ContentBlock) string {
	var parts []string
	for _, b := range content {
		switch b.Type {
		case agents.BlockText:
			parts = append(parts, b.Text)
		case agents.BlockResourceLink:
			parts = append(parts, fmt.Sprintf("[%s](%s)", b.Name, b.URI))
		case agents.BlockResource:
			parts = append(parts, fmt.Sprintf("[%s, embedded]", b.URI))
		}
	}
	return strings.Join(parts, "\n")
}

var escapeSequence = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|.?)")

// plain is a text without what would steer the terminal that shows it.
func plain(text string) string {
	text = escapeSequence.ReplaceAllString(strings.ReplaceAll(text, "\r\n", "\n"), "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r != '\n' && r != '\t' && unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
}
