// Package jsonrpc reads and writes the frames of JSON-RPC 2.0 over lines: strict about what is a frame, exact about ids. It does no
// I/O and knows no method.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Error codes of JSON-RPC and of the Agent Client Protocol.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeUnknownMethod  = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeNotFound       = -32002
)

// Error is the error of an answer.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an error.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ID is the id of a request: a string or an integer, kept as it was written. The zero ID is null.
type ID struct{ raw string }

// ParseID reads an id. Null, fractions and everything else are none.
func ParseID(raw json.RawMessage) (ID, bool) {
	text := string(bytes.TrimSpace(raw))
	if text == "" {
		return ID{}, false
	}
	if text[0] == '"' {
		return ID{text}, json.Valid(raw)
	}
	digits := text
	if digits[0] == '-' {
		digits = digits[1:]
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return ID{}, false
		}
	}
	return ID{text}, digits != "" && json.Valid(raw)
}

// StringID is the id of a request of one's own.
func StringID(text string) ID { return ID{strconv.Quote(text)} }

// Key is the same for ids that are equal, however they are written.
func (id ID) Key() string {
	var text string
	if json.Unmarshal([]byte(id.raw), &text) == nil && id.raw != "" && id.raw[0] == '"' {
		return strconv.Quote(text)
	}
	return id.raw
}

// MarshalJSON writes the id as it was read.
func (id ID) MarshalJSON() ([]byte, error) {
	if id.raw == "" {
		return []byte("null"), nil
	}
	return []byte(id.raw), nil
}

// UnmarshalJSON reads an id; null is the zero ID.
func (id *ID) UnmarshalJSON(raw []byte) error {
	parsed, ok := ParseID(raw)
	if !ok && string(raw) != "null" {
		return fmt.Errorf("id %s is neither a string nor an integer", raw)
	}
	*id = parsed
	return nil
}

// Kind says what a frame is.
type Kind int

// The kinds of frames.
const (
	Request Kind = iota + 1
	Notification
	Response
)

// Message is a frame that was read. An answer has no Method.
type Message struct {
	Kind   Kind
	ID     ID
	Method string
	Params json.RawMessage // as it was sent; nil when absent
	Result json.RawMessage
	Error  *Error
}

// Blank is true for a line that holds nothing.
func Blank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }

// Parse reads one line. A frame that is none is answered with the error, under the ID of the message: null when the frame has no
// usable id.
func Parse(line []byte) (Message, *Error) {
	if !utf8.Valid(line) {
		return Message{}, Errorf(CodeParse, "parse error: the frame is not UTF-8")
	}
	line = bytes.TrimSpace(line)
	if len(line) > 0 && line[0] != '{' {
		if !json.Valid(line) {
			return Message{}, Errorf(CodeParse, "parse error: the frame is not JSON")
		}
		if line[0] == '[' {
			return Message{}, Errorf(CodeInvalidRequest, "invalid request: batches are not supported")
		}
		return Message{}, Errorf(CodeInvalidRequest, "invalid request: the frame is not an object")
	}
	var fields map[string]json.RawMessage // a struct would take "Method" for "method"
	if err := json.Unmarshal(line, &fields); err != nil {
		return Message{}, Errorf(CodeParse, "parse error: %v", err)
	}
	return classify(fields)
}

func classify(fields map[string]json.RawMessage) (Message, *Error) {
	rawID, hasID := fields["id"]
	rawMethod, hasMethod := fields["method"]
	id, validID := ParseID(rawID)
	if !validID {
		id = ID{}
	}
	m := Message{ID: id, Params: fields["params"], Result: fields["result"]}
	switch {
	case !hasID && !hasMethod:
		return m, Errorf(CodeInvalidRequest, "invalid request: the frame has neither a method nor an id")
	case hasMethod && hasID && !validID:
		return m, Errorf(CodeInvalidRequest, "invalid request: the id must be a string or an integer")
	case !hasMethod:
		// An answer that is malformed is not answered: two peers would do so for ever.
		m.Kind = Response
		if raw, ok := fields["error"]; ok && string(raw) != "null" {
			m.Error = new(Error)
			if json.Unmarshal(raw, m.Error) != nil {
				m.Error = Errorf(CodeInternal, "malformed error")
			}
		}
		return m, nil
	}
	if json.Unmarshal(rawMethod, &m.Method) != nil || string(rawMethod) == "null" {
		return m, Errorf(CodeInvalidRequest, "invalid request: the method must be a string")
	}
	var version string
	if json.Unmarshal(fields["jsonrpc"], &version) != nil || version != "2.0" {
		return m, Errorf(CodeInvalidRequest, `invalid request: "jsonrpc" must be "2.0"`)
	}
	if len(m.Params) > 0 && m.Params[0] != '{' && m.Params[0] != '[' && string(m.Params) != "null" {
		return m, Errorf(CodeInvalidRequest, "invalid request: params must be an object")
	}
	m.Kind = Notification
	if hasID {
		m.Kind = Request
	}
	return m, nil
}

// version marks the frames that are written.
type version struct{}

func (version) MarshalJSON() ([]byte, error) { return []byte(`"2.0"`), nil }

// Answer makes the line of a result. A result that cannot be marshalled is a bug; it becomes an internal error.
func Answer(id ID, result any) []byte {
	frame, err := line(struct {
		Version version `json:"jsonrpc"`
		ID      ID      `json:"id"`
		Result  any     `json:"result"`
	}{ID: id, Result: result})
	if err != nil {
		return Fail(id, Errorf(CodeInternal, "marshal the result: %v", err))
	}
	return frame
}

// Fail makes the line of an error answer. The zero ID is written as null.
func Fail(id ID, e *Error) []byte {
	frame, err := line(struct {
		Version version `json:"jsonrpc"`
		ID      ID      `json:"id"`
		Error   *Error  `json:"error"`
	}{ID: id, Error: e})
	if err != nil { // it has a number and a text
		panic(fmt.Sprintf("jsonrpc: marshal an error: %v", err))
	}
	return frame
}

// Notify makes the line of a notification.
func Notify(method string, params any) ([]byte, error) {
	frame, err := line(struct {
		Version version `json:"jsonrpc"`
		Method  string  `json:"method"`
		Params  any     `json:"params"`
	}{Method: method, Params: params})
	if err != nil {
		return nil, fmt.Errorf("marshal the params of %s: %w", method, err)
	}
	return frame, nil
}

// Call makes the line of a request of one's own.
func Call(id ID, method string, params any) ([]byte, error) {
	frame, err := line(struct {
		Version version `json:"jsonrpc"`
		ID      ID      `json:"id"`
		Method  string  `json:"method"`
		Params  any     `json:"params"`
	}{ID: id, Method: method, Params: params})
	if err != nil {
		return nil, fmt.Errorf("marshal the params of %s: %w", method, err)
	}
	return frame, nil
}

// line leaves <, > and & as they are, for people who read the wire. Encode ends it with a newline.
func line(frame any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(frame)
	return b.Bytes(), err
}
