package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Format is the version of the log's format, recorded in each session's first event.
const Format = 1

// Event is one entry of a session's log. In JSON it is one flat object: seq, time, type, and the fields of Data.
type Event struct {
	// Seq counts from 1 without a gap.
	Seq  uint64
	Time time.Time
	// Type names Data's type. An event of a type that this package does not know has no Data; readers pass over it.
	Type string
	Data Data
}

// Data is the payload of an event: a pointer to one of the structs below.
type Data interface{ eventType() string }

// SessionCreated is the first event of every session.
type SessionCreated struct {
	Format    int    `json:"format"`
	SessionID string `json:"session_id"`
	Cwd       string `json:"cwd"`
}

// SessionTitle names the session for people. It is made from the first prompt, and stands after it.
type SessionTitle struct {
	Title string `json:"title"`
}

// SessionOption is a person's choice for the session. It may stand outside of turns.
type SessionOption struct {
	// Option is "model" or "mode".
	Option string `json:"option"`
	Value  string `json:"value"`
}

// TurnStart begins a turn. The messages it answers follow.
type TurnStart struct{}

// UserMessage is a prompt.
type UserMessage struct {
	PromptID string         `json:"prompt_id"`
	Content  []ContentBlock `json:"content"`
}

// The types of content blocks.
const (
	BlockText         = "text"
	BlockResourceLink = "resource_link"
	BlockResource     = "resource"
)

// ContentBlock is a part of a prompt: a text (Text), a link (URI, Name) or an embedded text (URI, MimeType, Text).
type ContentBlock struct {
	Type     string `json:"type"`
	URI      string `json:"uri,omitempty"`
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mime_type,omitempty"`
	Text     string `json:"text,omitempty"`
}

// ContextInjected is context for the next model request, from a plugin. It may stand outside of turns.
type ContextInjected struct {
	Text   string `json:"text"`
	Source Source `json:"source"`
	Key    string `json:"key,omitempty"`
}

// Source says where an injection comes from.
type Source struct {
	Kind   string `json:"kind"`
	Plugin string `json:"plugin,omitempty"`
}

// StepStart begins a step: one request to the model and the calls it asks for.
type StepStart struct{}

// ModelRetry says that the step's request failed before any of the answer came, and is made again.
type ModelRetry struct {
	Reason string `json:"reason"`
	// DelayMS is how long it waits, in milliseconds.
	DelayMS int64 `json:"delay_ms"`
}

// AssistantChunk is a piece of the model's answer as it came: of the text or of the reasoning, never both.
type AssistantChunk struct {
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
}

// AssistantMessage is the model's whole answer in this step. When the request failed or was cancelled it is what had come by then,
// without calls; it is absent when nothing had.
type AssistantMessage struct {
	Text      string        `json:"text,omitempty"`
	Reasoning string        `json:"reasoning,omitempty"`
	ToolCalls []ToolRequest `json:"tool_calls,omitempty"`
}

// ToolRequest is a call as the model asked for it.
type ToolRequest struct {
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Usage counts the tokens of a step's request.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// ContextWindow is 0 when unknown.
	ContextWindow int64 `json:"context_window,omitempty"`
}

// ToolCall shows a call before it runs. It may come again for the same call before ToolStart: then it replaces the one before.
type ToolCall struct {
	CallID       string       `json:"call_id"`
	Name         string       `json:"name"`
	Arguments    string       `json:"arguments"`
	Presentation Presentation `json:"presentation"`
}

// Presentation is what a person sees of a call.
type Presentation struct {
	Title string `json:"title"`
	// Kind is one of the Agent Client Protocol: read, edit, delete, move, search, execute, think, fetch, other.
	Kind     string          `json:"kind"`
	RawInput json.RawMessage `json:"raw_input,omitempty"`
	Terminal *Terminal       `json:"terminal,omitempty"`
}

// Terminal is set when a call's output is that of a terminal.
type Terminal struct {
	Cwd string `json:"cwd"`
}

// ToolAsk says that a hook wants a person to approve the call, which waits for the ToolAnswer.
type ToolAsk struct {
	CallID string `json:"call_id"`
	// Hook is the row of the hook.
	Hook   string `json:"hook"`
	Reason string `json:"reason"`
	// Key is what an answer for the whole session covers: later asks with the same key. Empty: there is no such answer.
	Key string `json:"key,omitempty"`
}

// ToolAnswer answers the call's ToolAsk. Without one before it, an earlier answer for the whole session covers what a hook asked.
type ToolAnswer struct {
	CallID  string  `json:"call_id"`
	Outcome Outcome `json:"outcome"`
}

// Outcome is what an ask came to.
type Outcome string

// The outcomes of an ask.
const (
	OutcomeAllowed           Outcome = "allowed"
	OutcomeAllowedForSession Outcome = "allowed-for-session" // and so are later asks with the same key
	OutcomeRejected          Outcome = "rejected"
	OutcomeCancelled         Outcome = "cancelled" // the turn ended before there was an answer; nobody can give it
)

// ToolStart says that the call really runs now. It is absent when it never ran.
type ToolStart struct {
	CallID string `json:"call_id"`
}

// ToolOutput is appended to what the call's terminal shows.
type ToolOutput struct {
	CallID string `json:"call_id"`
	Text   string `json:"text"`
}

// ToolResult is what a call came to. Every ToolRequest gets exactly one; without a ToolCall before it, the call never got as far as
// being shown.
type ToolResult struct {
	CallID  string     `json:"call_id"`
	Content []Content  `json:"content"`
	IsError bool       `json:"is_error,omitempty"`
	Error   *ToolError `json:"error,omitempty"`
	// Display is for people who cannot see terminals. Empty: Content.
	Display []Content `json:"display,omitempty"`
	// Exit is nil when the call had no terminal or its command never ran.
	Exit *Exit `json:"exit,omitempty"`
}

// Content is a part of a result.
type Content struct {
	Type string `json:"type"` // "text"
	Text string `json:"text"`
}

// ToolError says in which way a call failed.
type ToolError struct {
	Name string `json:"name"`
	Code string `json:"code"`
}

// Exit is the end of a process: exactly one of the two is set.
type Exit struct {
	Code   *int   `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"`
}

// StepEnd ends a step.
type StepEnd struct{}

// TurnEnd ends a turn.
type TurnEnd struct {
	Reason Reason `json:"reason"`
	// Error says why, with ReasonError.
	Error string `json:"error,omitempty"`
}

// Reason says how a turn ended.
type Reason string

// The reasons for which a turn ends.
const (
	ReasonCompleted   Reason = "completed"
	ReasonAborted     Reason = "aborted"     // it was cancelled
	ReasonError       Reason = "error"       // the model failed
	ReasonDisposed    Reason = "disposed"    // the agent stopped
	ReasonMaxTokens   Reason = "max-tokens"  // the answer was cut at the model's limit
	ReasonInterrupted Reason = "interrupted" // the agent crashed; found when the session was loaded
)

func (*SessionCreated) eventType() string   { return "session/created" }
func (*SessionTitle) eventType() string     { return "session/title" }
func (*SessionOption) eventType() string    { return "session/option" }
func (*TurnStart) eventType() string        { return "turn/start" }
func (*UserMessage) eventType() string      { return "user/message" }
func (*ContextInjected) eventType() string  { return "context/injected" }
func (*StepStart) eventType() string        { return "step/start" }
func (*ModelRetry) eventType() string       { return "model/retry" }
func (*AssistantChunk) eventType() string   { return "assistant/chunk" }
func (*AssistantMessage) eventType() string { return "assistant/message" }
func (*Usage) eventType() string            { return "usage" }
func (*ToolCall) eventType() string         { return "tool/call" }
func (*ToolAsk) eventType() string          { return "tool/ask" }
func (*ToolAnswer) eventType() string       { return "tool/answer" }
func (*ToolStart) eventType() string        { return "tool/start" }
func (*ToolOutput) eventType() string       { return "tool/output" }
func (*ToolResult) eventType() string       { return "tool/result" }
func (*StepEnd) eventType() string          { return "step/end" }
func (*TurnEnd) eventType() string          { return "turn/end" }

var dataOf = map[string]func() Data{
	"session/created":   func() Data { return new(SessionCreated) },
	"session/title":     func() Data { return new(SessionTitle) },
	"session/option":    func() Data { return new(SessionOption) },
	"turn/start":        func() Data { return new(TurnStart) },
	"user/message":      func() Data { return new(UserMessage) },
	"context/injected":  func() Data { return new(ContextInjected) },
	"step/start":        func() Data { return new(StepStart) },
	"model/retry":       func() Data { return new(ModelRetry) },
	"assistant/chunk":   func() Data { return new(AssistantChunk) },
	"assistant/message": func() Data { return new(AssistantMessage) },
	"usage":             func() Data { return new(Usage) },
	"tool/call":         func() Data { return new(ToolCall) },
	"tool/ask":          func() Data { return new(ToolAsk) },
	"tool/answer":       func() Data { return new(ToolAnswer) },
	"tool/start":        func() Data { return new(ToolStart) },
	"tool/output":       func() Data { return new(ToolOutput) },
	"tool/result":       func() Data { return new(ToolResult) },
	"step/end":          func() Data { return new(StepEnd) },
	"turn/end":          func() Data { return new(TurnEnd) },
}

// Types are the types of events, in the order in which a turn has them.
func Types() []string {
	return []string{
		"session/created", "session/option", "turn/start", "user/message", "session/title", "context/injected",
		"step/start", "model/retry", "assistant/chunk", "assistant/message", "usage",
		"tool/call", "tool/ask", "tool/answer", "tool/start", "tool/output", "tool/result", "step/end", "turn/end",
	}
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// Encode returns the event as it stands in the log, without the newline. It sets Type from Data.
func Encode(e Event) ([]byte, error) {
	var line bytes.Buffer
	line.WriteString(`{"seq":`)
	line.WriteString(strconv.FormatUint(e.Seq, 10))
	line.WriteString(`,"time":"`)
	line.WriteString(e.Time.UTC().Format(timeFormat))
	line.WriteString(`","type":"`)
	line.WriteString(e.Data.eventType())
	line.WriteString(`"`)
	start := line.Len()
	j := json.NewEncoder(&line)
	j.SetEscapeHTML(false)
	if err := j.Encode(e.Data); err != nil {
		return nil, fmt.Errorf("encode %s: %w", e.Data.eventType(), err)
	}
	line.Truncate(line.Len() - 1) // the encoder's newline
	b := line.Bytes()
	if len(b)-start == len("{}") {
		return append(b[:start], '}'), nil
	}
	b[start] = ','
	return b, nil
}

// Decode reads an event as Encode wrote it.
func Decode(line []byte) (Event, error) {
	e, ok := decodeHead(line)
	if !ok {
		var err error
		if e, err = parseHead(line); err != nil {
			return Event{}, err
		}
	}
	newData := dataOf[e.Type]
	if newData == nil {
		if err := json.Unmarshal(line, &struct{}{}); err != nil {
			return Event{}, fmt.Errorf("decode event: %w", err)
		}
		return e, nil
	}
	e.Data = newData()
	if err := json.Unmarshal(line, e.Data); err != nil {
		return Event{}, fmt.Errorf("decode event %d, %s: %w", e.Seq, e.Type, err)
	}
	return e, nil
}

// decodeHead decodes an event's seq, time and type when they stand as Encode writes them: long logs load in half the time. That the
// line is JSON is not checked here.
func decodeHead(line []byte) (Event, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	number, rest, found := bytes.Cut(rest, []byte(`,"time":"`))
	seq, err := strconv.ParseUint(string(number), 10, 64)
	if !ok || !found || err != nil || seq == 0 || len(rest) < len(timeFormat) {
		return Event{}, false
	}
	at, err := time.Parse(timeFormat, string(rest[:len(timeFormat)]))
	if err != nil {
		return Event{}, false
	}
	rest, ok = bytes.CutPrefix(rest[len(timeFormat):], []byte(`","type":"`))
	name, _, found := bytes.Cut(rest, []byte(`"`))
	if !ok || !found || len(name) == 0 || bytes.IndexByte(name, '\\') >= 0 {
		return Event{}, false
	}
	return Event{Seq: seq, Time: at, Type: string(name)}, true
}

// parseHead is decodeHead for whatever another program may have written.
func parseHead(line []byte) (Event, error) {
	var head struct {
		Seq  uint64    `json:"seq"`
		Time time.Time `json:"time"`
		Type string    `json:"type"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	if head.Seq == 0 || head.Type == "" {
		return Event{}, errors.New("decode event: it has no seq or no type")
	}
	return Event{Seq: head.Seq, Time: head.Time, Type: head.Type}, nil
}
