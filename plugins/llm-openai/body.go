package llmopenai

import (
	"encoding/json"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

// body is the JSON of a request. The messages are written by hand: there is the whole conversation in them with each step of each turn,
// and every other way takes longer than the step's tools.
func (c ModelConfig) body(req *llm.Request) ([]byte, error) {
	fields := map[string]any{
		"model":          c.ID,
		"stream":         true,
		"stream_options": map[string]bool{"include_usage": true},
	}
	if c.MaxTokens > 0 {
		fields["max_tokens"] = c.MaxTokens
	}
	if c.Temperature != nil {
		fields["temperature"] = *c.Temperature
	}
	if tools := req.GetTools(); len(tools) > 0 {
		fields["tools"] = functions(tools)
	}
	fields["messages"] = nil // unless extraBody says otherwise
	maps.Copy(fields, c.ExtraBody)

	b := make([]byte, 0, 1<<10+proto.Size(req)*3/2)
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		if name == "messages" && fields[name] == nil {
			b = c.appendMessages(b, req.GetMessages())
			continue
		}
		value, err := json.Marshal(fields[name])
		if err != nil {
			return nil, err
		}
		b = append(b, value...)
	}
	return append(b, '}'), nil
}

// function describes a tool. The schema goes out as the tool wrote it: through a map it would lose its order.
type function struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

func functions(tools []*toolsv1.Tool) []function {
	list := make([]function, len(tools))
	for i, tool := range tools {
		schema := json.RawMessage(tool.GetInputSchema())
		if !json.Valid(schema) {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		f := &list[i]
		f.Type, f.Function.Name, f.Function.Description, f.Function.Parameters = "function", tool.GetName(), tool.GetDescription(), schema
	}
	return list
}

func (c ModelConfig) appendMessages(b []byte, messages []*llm.Message) []byte {
	b = append(b, '[')
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		switch m.GetRole() {
		case llm.System:
			b = append(b, `{"role":"system"`...)
		case llm.Assistant:
			b = append(b, `{"role":"assistant"`...)
		case llm.Tool:
			b = appendString(append(b, `{"role":"tool","tool_call_id":`...), m.GetToolCallId())
		default:
			b = append(b, `{"role":"user"`...)
		}
		if m.GetText() != "" || len(m.GetToolCalls()) == 0 { // a message must have one of the two
			b = appendString(append(b, `,"content":`...), m.GetText())
		}
		if calls := m.GetToolCalls(); len(calls) > 0 {
			b = c.appendCalls(b, m.GetReasoning(), calls)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func (c ModelConfig) appendCalls(b []byte, reasoning string, calls []*llm.ToolCall) []byte {
	if *c.SendReasoning { // also an empty one
		b = appendString(append(b, `,"reasoning_content":`...), reasoning)
	}
	b = append(b, `,"tool_calls":[`...)
	for i, call := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"type":"function","id":`...), call.GetId())
		b = appendString(append(b, `,"function":{"name":`...), call.GetName())
		b = appendString(append(b, `,"arguments":`...), call.GetArguments())
		b = append(b, "}}"...)
	}
	return append(b, ']')
}

// appendString appends a JSON string. Its text is valid UTF-8, as all are that come out of a call.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(append(b, s[from:i]...), '\\', c)
		case c == '\n':
			b = append(append(b, s[from:i]...), '\\', 'n')
		case c < ' ':
			b = append(append(b, s[from:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			continue
		}
		from = i + 1
	}
	return append(append(b, s[from:]...), '"')
}
