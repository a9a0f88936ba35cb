// Package llmshell stands in for a language model: it runs what it is told, so that dsh works without a key. A message of the
// form `<tool> <JSON object>` becomes that tool call, any other message a call of bash with the message as its command; a line
// on how the call ended closes the turn.
package llmshell

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/llm"
)

// Plugin is the plugin llm-shell.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{Name: "llm-shell", Version: "1", Provides: []sdk.Seam{llm.Seam}}, sdk.NoConfig{},
		func(c *sdk.Context, _ sdk.NoConfig) error {
			llm.Serve(c, shell{})
			return nil
		})
}

// shell answers each request from the request alone.
type shell struct{}

func (shell) Generate(_ context.Context, req *llm.Request, emit func(*llm.Event) error) (llm.Reason, error) {
	if call, ok := nextCall(req); ok {
		return llm.Stop, emit(llm.ToolCallEvent(call))
	}
	return llm.Stop, emit(llm.TextEvent(reply(req)))
}

// nextCall is the call that the conversation asks for; false: it ends with a result, or with nothing that can be run.
func nextCall(req *llm.Request) (*llm.ToolCall, bool) {
	last, text := lastMessage(req)
	if last.GetRole() != llm.User || strings.TrimSpace(text) == "" {
		return nil, false
	}
	if name, arguments, ok := toolForm(text); ok && hasTool(req, name) {
		return &llm.ToolCall{Id: newCallID(req), Name: name, Arguments: arguments}, true
	}
	if !hasTool(req, "bash") {
		return nil, false
	}
	arguments, err := json.Marshal(struct {
		Command     string `json:"command"`
		Description string `json:"description"`
	}{text, "Run the command"})
	if err != nil {
		panic(err) // two strings always marshal
	}
	return &llm.ToolCall{Id: newCallID(req), Name: "bash", Arguments: string(arguments)}, true
}

// reply is the line that closes the turn.
func reply(req *llm.Request) string {
	last, text := lastMessage(req)
	switch {
	case last.GetRole() == llm.Tool:
		return ending(callOf(req, last.GetToolCallId()), text)
	case last.GetRole() == llm.User && strings.TrimSpace(text) != "":
		return "I can run a command only with the tool bash, and there is none: no plugin that provides it is active."
	}
	return "There is nothing to run: send a command, or a tool's name and its arguments as a JSON object."
}

// lastMessage is the last message that is not only context, and its text without the context.
func lastMessage(req *llm.Request) (*llm.Message, string) {
	for i := len(req.GetMessages()) - 1; i >= 0; i-- {
		m := req.GetMessages()[i]
		if m.GetRole() != llm.User {
			return m, m.GetText()
		}
		if text := withoutContext(m.GetText()); text != "" {
			return m, text
		}
	}
	return nil, ""
}

// withoutContext drops the context that a user's message begins with. What follows the last closing tag is the message: a
// tag within an injected text must not turn the rest of that text into a command.
func withoutContext(text string) string {
	if !strings.HasPrefix(text, "<context source=") {
		return text
	}
	const end = "</context>"
	at := strings.LastIndex(text, end)
	if at < 0 {
		return ""
	}
	return strings.TrimLeft(text[at+len(end):], "\r\n")
}

// toolForm splits `<tool> <JSON object>`.
func toolForm(text string) (name, arguments string, ok bool) {
	text = strings.TrimSpace(text)
	at := strings.IndexFunc(text, unicode.IsSpace)
	if at < 0 {
		return "", "", false
	}
	name, arguments = text[:at], strings.TrimSpace(text[at:])
	return name, arguments, strings.HasPrefix(arguments, "{") && json.Valid([]byte(arguments))
}

func hasTool(req *llm.Request, name string) bool {
	for _, tool := range req.GetTools() {
		if tool.GetName() == name {
			return true
		}
	}
	return false
}

// newCallID is an id that no call of the conversation has, the same whenever the same request is repeated.
func newCallID(req *llm.Request) string {
	n := len(req.GetMessages())
	for {
		id := fmt.Sprintf("call-%d", n)
		if callOf(req, id) == nil {
			return id
		}
		n++
	}
}

// callOf finds a call of the conversation; nil: there is none with that id.
func callOf(req *llm.Request, id string) *llm.ToolCall {
	for _, m := range req.GetMessages() {
		for _, call := range m.GetToolCalls() {
			if call.GetId() == id {
				return call
			}
		}
	}
	return nil
}
