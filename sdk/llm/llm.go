// Package llm is the llm seam: one request to a language model, its answer streamed. Adapters implement [Model] and hand it to
// [Serve]; consumers call [Client.Generate].
package llm

import (
	"time"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/llmv1"
)

// Seam is "llm".
var Seam = sdk.Seam{Name: "llm", Service: llmv1.Llm_ServiceDesc.ServiceName}

// The messages of the seam under short names.
type (
	// Request is a conversation, and the tools that the model may call.
	Request = llmv1.GenerateRequest
	// Message is one message of a conversation.
	Message = llmv1.Message
	// ToolCall is a call that a model asks for.
	ToolCall = llmv1.ToolCall
	// Usage counts tokens.
	Usage = llmv1.Usage
	// Event is a piece of an answer: text, reasoning, a complete tool call, or usage; or a retry before it.
	Event = llmv1.GenerateResponse
	// ModelInfo is a model that a request may name.
	ModelInfo = llmv1.Model
	// Retry says why a request is made again, and after how long.
	Retry = llmv1.Retry
	// Reason says why an answer ended.
	Reason = llmv1.Finish_Reason
)

// Roles of messages.
const (
	System    = llmv1.Message_ROLE_SYSTEM
	User      = llmv1.Message_ROLE_USER
	Assistant = llmv1.Message_ROLE_ASSISTANT
	Tool      = llmv1.Message_ROLE_TOOL
)

// Reasons why an answer ended.
const (
	// Stop: the answer is complete, or asks for tools.
	Stop = llmv1.Finish_REASON_STOP
	// MaxTokens: the answer was cut at the model's limit.
	MaxTokens = llmv1.Finish_REASON_MAX_TOKENS
	// Refused: the model refused.
	Refused = llmv1.Finish_REASON_REFUSED
)

// TextEvent is a piece of the answer's text.
func TextEvent(text string) *Event {
	return &Event{Event: &llmv1.GenerateResponse_Text{Text: text}}
}

// ReasoningEvent is a piece of what the model thinks before it answers.
func ReasoningEvent(text string) *Event {
	return &Event{Event: &llmv1.GenerateResponse_Reasoning{Reasoning: text}}
}

// ToolCallEvent is one complete tool call.
func ToolCallEvent(call *ToolCall) *Event {
	return &Event{Event: &llmv1.GenerateResponse_ToolCall{ToolCall: call}}
}

// RetryEvent says that the request failed before anything of an answer came, and is made again after a delay.
func RetryEvent(reason string, delay time.Duration) *Event {
	return &Event{Event: &llmv1.GenerateResponse_Retry{Retry: &Retry{Reason: reason, DelayMs: delay.Milliseconds()}}}
}

// UsageEvent counts the tokens of the request.
func UsageEvent(usage *Usage) *Event {
	return &Event{Event: &llmv1.GenerateResponse_Usage{Usage: usage}}
}
