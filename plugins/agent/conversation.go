package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/llm"
)

// conversation is what a log means: the messages that the model is sent, and what is open. It grows with each event, live and
// when a log is loaded alike, and is never derived anew. Its session's lock guards it.
type conversation struct {
	system   string // the configured system prompt
	created  agents.SessionCreated
	title    string      // of the first prompt
	updated  time.Time   // when the last turn ended, or the session was created
	history  llm.History // the system prompt first
	injected []string    // context that waits for the next request
	keys     map[string]struct{}
	callIDs  map[string]struct{} // of all calls: they are unique within the session
	chosen   map[string]string   // values by option
	allowed  map[string]struct{} // keys of asks that a person has allowed for the session; never the empty one

	inTurn, inStep  bool
	unanswered      []agents.ToolRequest // of the step under way, in call order
	answered        bool                 // the step has its assistant/message
	asked           *agents.ToolAsk      // has no answer yet
	text, reasoning strings.Builder      // of the step's chunks, until assistant/message
}

// apply takes the next event of the log.
func (c *conversation) apply(e agents.Event) {
	switch d := e.Data.(type) {
	case *agents.SessionCreated:
		c.created, c.updated = *d, e.Time
		c.history.Append(&llm.Message{Role: llm.System, Text: c.system + "\n\nThe working directory is " + d.Cwd + "."})
	case *agents.SessionTitle:
		c.title = d.Title
	case *agents.SessionOption:
		if c.chosen == nil {
			c.chosen = map[string]string{}
		}
		c.chosen[d.Option] = d.Value
	case *agents.TurnStart:
		c.inTurn = true
	case *agents.UserMessage:
		text := promptText(d.Content)
		if c.title == "" {
			c.title = titleOf(d.Content)
		}
		c.flush()
		c.history.Append(&llm.Message{Role: llm.User, Text: text})
	case *agents.ContextInjected:
		c.injected = append(c.injected, contextText(d))
		if d.Key != "" {
			if c.keys == nil {
				c.keys = map[string]struct{}{}
			}
			c.keys[d.Key] = struct{}{}
		}
	case *agents.StepStart:
		c.flush()
		c.inStep, c.answered = true, false
	case *agents.AssistantChunk:
		c.text.WriteString(d.Text)
		c.reasoning.WriteString(d.Reasoning)
	case *agents.AssistantMessage:
		c.assistant(d)
	case *agents.ToolAsk:
		c.asked = d
	case *agents.ToolAnswer:
		if c.asked != nil && c.asked.Key != "" && d.Outcome == agents.OutcomeAllowedForSession {
			if c.allowed == nil {
				c.allowed = map[string]struct{}{}
			}
			c.allowed[c.asked.Key] = struct{}{}
		}
		c.asked = nil
	case *agents.ToolResult:
		c.result(d)
	case *agents.StepEnd:
		c.inStep = false
	case *agents.TurnEnd:
		c.inTurn, c.updated = false, e.Time
	}
}

func (c *conversation) assistant(d *agents.AssistantMessage) {
	c.answered = true
	c.text.Reset()
	c.reasoning.Reset()
	c.unanswered = append(c.unanswered[:0], d.ToolCalls...)
	if d.Text == "" && len(d.ToolCalls) == 0 {
		return // adapters refuse a message that says nothing
	}
	m := &llm.Message{Role: llm.Assistant, Text: d.Text, Reasoning: d.Reasoning}
	for _, call := range d.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, &llm.ToolCall{Id: call.CallID, Name: call.Name, Arguments: call.Arguments})
		if c.callIDs == nil {
			c.callIDs = map[string]struct{}{}
		}
		c.callIDs[call.CallID] = struct{}{}
	}
	c.history.Append(m)
}

func (c *conversation) result(d *agents.ToolResult) {
	for i, call := range c.unanswered {
		if call.CallID == d.CallID {
			c.unanswered = append(c.unanswered[:i:i], c.unanswered[i+1:]...)
			c.history.Append(&llm.Message{Role: llm.Tool, ToolCallId: d.CallID, Text: contentText(d.Content)})
			return
		}
	}
}

// flush moves waiting context to where the next request will have it: never between calls and their results.
func (c *conversation) flush() {
	for _, text := range c.injected {
		c.history.Append(&llm.Message{Role: llm.User, Text: text})
	}
	c.injected = nil
}

// partial is the step's answer as far as it has come; nil when there is none, or when it is complete.
func (c *conversation) partial() *agents.AssistantMessage {
	if !c.inStep || c.answered || c.text.Len()+c.reasoning.Len() == 0 {
		return nil
	}
	return &agents.AssistantMessage{Text: c.text.String(), Reasoning: c.reasoning.String()}
}

// answer is the step's answer, complete. Calls whose id is empty or was there before get one of their own.
func (c *conversation) answer(calls []agents.ToolRequest) *agents.AssistantMessage {
	message := &agents.AssistantMessage{Text: c.text.String(), Reasoning: c.reasoning.String(), ToolCalls: calls}
	seen := map[string]bool{"": true}
	for i := range calls {
		id := calls[i].CallID
		for n := len(c.callIDs) + 1; seen[id] || c.knows(id); n++ {
			id = fmt.Sprintf("call-%d", n)
		}
		seen[id], calls[i].CallID = true, id
	}
	return message
}

func (c *conversation) knows(callID string) bool {
	_, known := c.callIDs[callID]
	return known
}

// callFailure is what a call comes to that has no result of its own.
type callFailure struct{ name, code, text string }

// interrupted is what a call comes to whose agent crashed.
var interrupted = callFailure{"ToolInterruptedError", "interrupted", "Tool call interrupted by a crash; no result was recorded."}

// repair is what a log that ends in the middle of a turn lacks.
func (c *conversation) repair() []agents.Data {
	if !c.inTurn {
		return nil
	}
	return c.unfinished(interrupted, &agents.TurnEnd{Reason: agents.ReasonInterrupted})
}

// unfinished is what the turn lacks, wherever it stands.
func (c *conversation) unfinished(f callFailure, end *agents.TurnEnd) []agents.Data {
	var missing []agents.Data
	if partial := c.partial(); partial != nil {
		missing = append(missing, partial)
	}
	if c.asked != nil {
		missing = append(missing, &agents.ToolAnswer{CallID: c.asked.CallID, Outcome: agents.OutcomeCancelled})
	}
	for _, call := range c.unanswered {
		missing = append(missing, failure(call.CallID, f))
	}
	if c.inStep {
		missing = append(missing, &agents.StepEnd{})
	}
	return append(missing, end)
}

func failure(callID string, f callFailure) *agents.ToolResult {
	return &agents.ToolResult{
		CallID: callID, IsError: true, Error: &agents.ToolError{Name: f.name, Code: f.code},
		Content: []agents.Content{{Type: "text", Text: f.text}},
	}
}

// info is what List shows.
func (c *conversation) info() info {
	return info{Cwd: c.created.Cwd, Title: c.title, Updated: c.updated}
}

// promptText is a prompt as the model reads it.
func promptText(content []agents.ContentBlock) string {
	var parts []string
	for _, b := range content {
		switch b.Type {
		case agents.BlockText:
			parts = append(parts, b.Text)
		case agents.BlockResourceLink:
			parts = append(parts, fmt.Sprintf("[%s](%s)", b.Name, b.URI))
		case agents.BlockResource:
			parts = append(parts, fmt.Sprintf("<resource uri=%q>\n%s\n</resource>", b.URI, b.Text))
		}
	}
	return strings.Join(parts, "\n\n")
}

func contextText(d *agents.ContextInjected) string {
	return fmt.Sprintf("<context source=%q>\n%s\n</context>", d.Source.Kind, d.Text)
}

func contentText(content []agents.Content) string {
	if len(content) == 1 {
		return content[0].Text
	}
	var parts []string
	for _, c := range content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, "\n")
}

// maxTitle is the length of a session's title in characters.
const maxTitle = 80

// titleOf is the first line of a prompt that says something, cut to maxTitle.
func titleOf(content []agents.ContentBlock) string {
	for _, b := range content {
		text := b.Text
		if b.Type == agents.BlockResourceLink {
			text = b.Name
		} else if b.Type == agents.BlockResource {
			continue
		}
		for line := range strings.Lines(text) {
			line = strings.ToValidUTF8(line[:min(len(line), 100*maxTitle)], "")
			if line = strings.Join(strings.Fields(line), " "); line == "" {
				continue
			}
			if runes := []rune(line); len(runes) > maxTitle {
				line = strings.TrimSpace(string(runes[:maxTitle-1])) + "…"
			}
			return line
		}
	}
	return ""
}
