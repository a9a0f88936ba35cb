package llmopenai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/dsh-go/dsh/sdk/llm"
)

// answer turns a stream of chunks into events. Text and reasoning go out as they come; tool calls and usage at the end, whole.
// An id that a server leaves out stays empty: the agent gives the call one.
type answer struct {
	*request
	emit  func(*llm.Event) error
	watch *stallWatch

	chunks  int
	choices int
	finish  string // the finish reason, once it has come
	refused bool
	calls   []*llm.ToolCall
	byIndex map[int64]*llm.ToolCall
	usage   *llm.Usage
}

// read reads the stream to its end. What goes wrong after the finish reason has come costs the usage, not the answer.
func (a *answer) read(ctx context.Context, response *http.Response) (llm.Reason, error) {
	stream := ssestream.NewDecoder(response)
	for stream.Next() {
		data := bytes.TrimSpace(stream.Event().Data)
		if bytes.Equal(data, []byte("[DONE]")) {
			break
		}
		if len(data) == 0 {
			continue
		}
		if err := a.chunk(stream.Event().Type, data); err != nil {
			if _, ok := errors.AsType[*failure](err); ok && a.finish != "" {
				break
			}
			return 0, err
		}
		if a.finish != "" {
			a.watch.limit = min(a.watch.limit, finishGrace)
		}
	}
	if a.finish == "" {
		return 0, a.unfinished(ctx, response, stream.Err())
	}
	return a.end()
}

func (a *answer) chunk(event string, data []byte) error {
	var chunk openai.ChatCompletionChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return a.badChunk(data)
	}
	if problem := raw(chunk.JSON.ExtraFields, "error"); problem != "" || event == "error" {
		if problem == "" {
			problem = string(data)
		}
		return a.streamError([]byte(problem))
	}
	a.chunks++
	if chunk.JSON.Usage.Valid() {
		a.usage = &llm.Usage{
			InputTokens:   chunk.Usage.PromptTokens,
			OutputTokens:  chunk.Usage.CompletionTokens,
			ContextWindow: a.ContextWindow,
		}
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 { // one was asked for
			continue
		}
		a.choices++
		if err := a.delta(choice.Delta); err != nil {
			return err
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	return nil
}

func (a *answer) delta(delta openai.ChatCompletionChunkChoiceDelta) error {
	reasoning := text(delta.JSON.ExtraFields, "reasoning_content") // DeepSeek and those who follow it
	if reasoning == "" {
		reasoning = text(delta.JSON.ExtraFields, "reasoning") // OpenRouter, Ollama, newer vLLM
	}
	if reasoning != "" {
		if err := a.emit(llm.ReasoningEvent(reasoning)); err != nil {
			return err
		}
	}
	if delta.Refusal != "" {
		a.refused = true
	}
	for _, t := range []string{delta.Content, delta.Refusal} {
		if t == "" {
			continue
		}
		if err := a.emit(llm.TextEvent(t)); err != nil {
			return err
		}
	}
	for _, part := range delta.ToolCalls {
		call := a.callOf(part)
		if call.GetId() == "" {
			call.Id = part.ID
		}
		if call.GetName() == "" {
			call.Name = part.Function.Name
		}
		call.Arguments += part.Function.Arguments
	}
	return nil
}

// callOf is the call that a part belongs to. Parts of one call share an index; some servers send none, or 0 for every call,
// and begin each with an id and a name.
func (a *answer) callOf(part openai.ChatCompletionChunkChoiceDeltaToolCall) *llm.ToolCall {
	var call *llm.ToolCall
	switch {
	case part.JSON.Index.Valid():
		call = a.byIndex[part.Index]
	case len(a.calls) > 0 && (part.Function.Name == "" || part.ID != "" && part.ID == a.calls[len(a.calls)-1].GetId()):
		call = a.calls[len(a.calls)-1]
	}
	if call != nil && (part.ID == "" || call.GetId() == "" || part.ID == call.GetId() || part.Function.Name == "") {
		return call
	}
	call = &llm.ToolCall{}
	a.calls = append(a.calls, call)
	if a.byIndex == nil {
		a.byIndex = map[int64]*llm.ToolCall{}
	}
	if part.JSON.Index.Valid() {
		a.byIndex[part.Index] = call
	}
	return call
}

// end sends what was kept back and returns why the answer ended.
func (a *answer) end() (llm.Reason, error) {
	reason := llm.Stop
	switch a.finish {
	case "length", "max_tokens":
		reason = llm.MaxTokens
	case "content_filter":
		reason = llm.Refused
	case "error", "insufficient_system_resource":
		return 0, a.gaveUp()
	}
	if a.refused {
		reason = llm.Refused
	}
	if reason == llm.Stop { // calls of an answer that was cut may be cut themselves
		for _, call := range a.calls {
			if call.GetName() == "" {
				return 0, a.namelessCall()
			}
			if err := a.emit(llm.ToolCallEvent(call)); err != nil {
				return 0, err
			}
		}
	}
	if a.usage != nil {
		if err := a.emit(llm.UsageEvent(a.usage)); err != nil {
			return 0, err
		}
	}
	return reason, nil
}

// raw is the JSON of a field that the client does not know; empty: it is absent or null.
func raw(fields map[string]respjson.Field, name string) string {
	if text := fields[name].Raw(); text != "null" {
		return text
	}
	return ""
}

// text is a field that the client does not know, if it is a string.
func text(fields map[string]respjson.Field, name string) string {
	var s string
	if err := json.Unmarshal([]byte(raw(fields, name)), &s); err != nil {
		return ""
	}
	return s
}
