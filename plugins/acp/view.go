package acp

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dsh-go/dsh/sdk/agents"
)

// maxOutputBytes limits the data of one terminal_output.
const maxOutputBytes = 32 << 10

// view turns the events of a session into what its editor shows, without I/O: the same events give the same updates, live and in
// a replay, but for the person's own messages, which only a replay shows.
//
// Its fields are what must be remembered between two events; they go into the checkpoint when a turn is handed over.
type view struct {
	// Terminals is true for a client that shows the agent's terminals.
	Terminals bool `json:"terminals,omitempty"`
	// Open are the cards of the turn that are not closed, in the order in which they appeared.
	Open []card `json:"open,omitempty"`
	// Text and Reasoning are true when chunks of the step have shown the model's message.
	Text      bool `json:"text,omitempty"`
	Reasoning bool `json:"reasoning,omitempty"`

	replay bool
	title  string  // of a replay: the last one
	usage  *update // likewise
}

// card is a tool call that is not over.
type card struct {
	ID string `json:"id"`
	// Terminal is true when the card has announced one, which it then owes an exit.
	Terminal bool `json:"terminal,omitempty"`
	Running  bool `json:"running,omitempty"`
	// NewLine is true when the terminal's output so far is empty or ends with a newline.
	NewLine bool `json:"newLine,omitempty"`
	// Shown is what a question about the call repeats; nil when it runs already.
	Shown *agents.Presentation `json:"shown,omitempty"`
	// Reason is true when the card shows a hook's reason to ask, until that is answered.
	Reason bool `json:"reason,omitempty"`
}

// show returns the updates that an event makes. An event of a type it does not know makes none.
func (v *view) show(e agents.Event) []update {
	switch data := e.Data.(type) {
	case *agents.StepStart:
		v.Text, v.Reasoning = false, false
	case *agents.UserMessage:
		if v.replay {
			return userMessage(data)
		}
	case *agents.AssistantChunk:
		v.Text = v.Text || data.Text != ""
		v.Reasoning = v.Reasoning || data.Reasoning != ""
		return assistantMessage(data.Reasoning, data.Text)
	case *agents.AssistantMessage:
		return v.wholeMessage(data)
	case *agents.ToolCall:
		return v.call(data)
	case *agents.ToolAnswer:
		return v.answered(data)
	case *agents.ToolStart:
		return v.start(data)
	case *agents.ToolOutput:
		return v.output(data)
	case *agents.ToolResult:
		return v.result(data)
	case *agents.Usage:
		return v.used(data)
	case *agents.SessionTitle:
		if v.replay {
			v.title = data.Title
			return nil
		}
		return []update{{Kind: kindSessionInfo, Title: data.Title}}
	case *agents.TurnEnd:
		return v.closeAll()
	}
	return nil
}

// used shows how full the model's window is, when its size is known.
func (v *view) used(data *agents.Usage) []update {
	if data.ContextWindow <= 0 {
		return nil
	}
	u := usageUpdate(data)
	if v.replay {
		v.usage = &u
		return nil
	}
	return []update{u}
}

// asked is a call as a question about it shows it. A reason to ask comes after what the card shows, and stays until the answer.
func (v *view) asked(data *agents.ToolAsk) askedCall {
	call := askedCall{ToolCallID: data.CallID, Status: statusPending}
	c := v.find(data.CallID)
	if c == nil {
		return call
	}
	if p := c.Shown; p != nil {
		call.Title, call.ToolKind, call.RawInput = p.Title, p.Kind, p.RawInput
	}
	if data.Reason != "" {
		c.Reason = true
		block := textBlock(data.Reason)
		call.Content = append(c.content(), cardContent{Type: "content", Content: &block})
	}
	return call
}

// answered takes the reason to ask off the card.
func (v *view) answered(data *agents.ToolAnswer) []update {
	c := v.find(data.CallID)
	if c == nil || !c.Reason {
		return nil
	}
	c.Reason = false
	return []update{{Kind: kindCardUpdate, ToolCallID: c.ID, Content: c.content()}}
}

// content is what the card shows before it has a result.
func (c *card) content() []cardContent {
	if c.Terminal {
		return []cardContent{{Type: "terminal", TerminalID: c.ID}}
	}
	return []cardContent{}
}

func userMessage(m *agents.UserMessage) []update {
	var updates []update
	for _, b := range m.Content {
		block := textBlock(b.Text)
		switch b.Type {
		case agents.BlockResourceLink:
			block = contentBlock{Type: "resource_link", URI: b.URI, Name: &b.Name}
		case agents.BlockResource:
			block = contentBlock{Type: "resource", Resource: &resourceContent{URI: b.URI, MimeType: b.MimeType, Text: &b.Text}}
		}
		updates = append(updates, update{Kind: kindUserMessage, Content: block})
	}
	return updates
}

func assistantMessage(reasoning, text string) []update {
	var updates []update
	if reasoning != "" {
		updates = append(updates, update{Kind: kindAgentThought, Content: textBlock(reasoning)})
	}
	if text != "" {
		updates = append(updates, update{Kind: kindAgentMessage, Content: textBlock(text)})
	}
	return updates
}

// wholeMessage shows what of the model's message has not come in chunks.
func (v *view) wholeMessage(m *agents.AssistantMessage) []update {
	reasoning, text := m.Reasoning, m.Text
	if v.Reasoning {
		reasoning = ""
	}
	if v.Text {
		text = ""
	}
	return assistantMessage(reasoning, text)
}

func (v *view) call(data *agents.ToolCall) []update {
	p := data.Presentation
	u := update{
		Kind: kindCard, ToolCallID: data.CallID, Title: p.Title, ToolKind: p.Kind, Status: statusPending, RawInput: p.RawInput,
	}
	if c := v.find(data.CallID); c != nil { // the arguments were rewritten: the card is there, and only a new one can have a terminal
		c.Shown = &p
		u.Kind, u.Status = kindCardUpdate, ""
		return []update{u}
	}
	c := card{ID: data.CallID, Terminal: v.Terminals && p.Terminal != nil, NewLine: true, Shown: &p}
	if c.Terminal {
		u.Content = c.content()
		u.Meta = &terminalMeta{Info: &terminalInfo{c.ID, p.Terminal.Cwd}}
	}
	v.Open = append(v.Open, c)
	return []update{u}
}

func (v *view) start(data *agents.ToolStart) []update {
	c := v.find(data.CallID)
	if c == nil || c.Running {
		return nil
	}
	c.Running, c.Shown = true, nil
	return []update{{Kind: kindCardUpdate, ToolCallID: c.ID, Status: statusRunning}}
}

func (v *view) output(data *agents.ToolOutput) []update {
	c := v.find(data.CallID)
	if c == nil || !c.Terminal {
		return nil
	}
	return c.print(data.Text)
}

func (c *card) print(text string) []update {
	var updates []update
	for len(text) > 0 {
		piece := text[:cut(text, maxOutputBytes)]
		text = text[len(piece):]
		updates = append(updates, update{
			Kind: kindCardUpdate, ToolCallID: c.ID, Meta: &terminalMeta{Output: &terminalOutput{c.ID, piece}},
		})
		c.NewLine = strings.HasSuffix(piece, "\n")
	}
	return updates
}

// cut is the length of the longest beginning of text that has at most limit bytes and whole characters.
func cut(text string, limit int) int {
	if len(text) <= limit {
		return len(text)
	}
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return n
		}
	}
	return limit // no UTF-8
}

func (v *view) result(data *agents.ToolResult) []update {
	c := v.find(data.CallID)
	if c == nil {
		return nil
	}
	var updates []update
	status := statusCompleted
	if data.IsError {
		status = statusFailed
	} else if !c.Running {
		updates = append(updates, update{Kind: kindCardUpdate, ToolCallID: c.ID, Status: statusRunning})
	}
	last := update{Kind: kindCardUpdate, ToolCallID: c.ID, Status: status}
	if c.Terminal {
		exit := &terminalExit{TerminalID: c.ID}
		if data.Exit != nil {
			exit.ExitCode = data.Exit.Code
			if data.Exit.Signal != "" {
				exit.Signal = &data.Exit.Signal
			}
		} else { // nothing but the result says what happened
			updates = append(updates, c.printResult(data)...)
		}
		last.Meta = &terminalMeta{Exit: exit}
	} else {
		last.Content = resultContent(data)
	}
	v.Open = slices.DeleteFunc(v.Open, func(o card) bool { return o.ID == data.CallID })
	return append(updates, last)
}

func (c *card) printResult(data *agents.ToolResult) []update {
	var text strings.Builder
	for _, part := range data.Content {
		text.WriteString(part.Text)
	}
	if text.Len() > 0 && !c.NewLine {
		return c.print("\n" + text.String())
	}
	return c.print(text.String())
}

func resultContent(data *agents.ToolResult) []cardContent {
	parts := data.Display
	if len(parts) == 0 {
		parts = data.Content
	}
	content := []cardContent{}
	for _, part := range parts {
		block := textBlock(part.Text)
		content = append(content, cardContent{Type: "content", Content: &block})
	}
	return content
}

// closeAll closes what the turn has left open: as failed.
func (v *view) closeAll() []update {
	var updates []update
	for _, c := range v.Open {
		u := update{Kind: kindCardUpdate, ToolCallID: c.ID, Status: statusFailed}
		if c.Terminal {
			u.Meta = &terminalMeta{Exit: &terminalExit{TerminalID: c.ID}}
		}
		updates = append(updates, u)
	}
	v.Open = nil
	return updates
}

func (v *view) find(id string) *card {
	for i := range v.Open {
		if v.Open[i].ID == id {
			return &v.Open[i]
		}
	}
	return nil
}
