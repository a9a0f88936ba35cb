package agent

import (
	"encoding/json"
	"strings"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// presentation is what the log keeps of how a person sees a call.
func presentation(p *toolsv1.Presentation) agents.Presentation {
	kind := strings.ToLower(strings.TrimPrefix(p.GetKind().String(), "KIND_"))
	if p.GetKind() == toolsv1.Presentation_KIND_UNSPECIFIED {
		kind = "other"
	}
	shown := agents.Presentation{Title: p.GetTitle(), Kind: kind}
	switch raw := p.GetRawInput(); {
	case raw == "":
	case json.Valid([]byte(raw)):
		shown.RawInput = json.RawMessage(raw)
	default: // it should be JSON; show it all the same
		shown.RawInput, _ = json.Marshal(raw) // a string is always valid
	}
	if t := p.GetTerminal(); t != nil {
		shown.Terminal = &agents.Terminal{Cwd: t.GetCwd()}
	}
	return shown
}

// toolResult is what the log keeps of a result.
func toolResult(callID string, r *toolsv1.Result) *agents.ToolResult {
	result := &agents.ToolResult{
		CallID: callID, Content: content(r.GetContent()), IsError: r.GetIsError(), Display: content(r.GetDisplay()),
	}
	if result.Content == nil {
		result.Content = []agents.Content{}
	}
	if e := r.GetError(); e != nil {
		result.Error = &agents.ToolError{Name: e.GetName(), Code: e.GetCode()}
	}
	if x := r.GetExit(); x != nil {
		result.Exit = &agents.Exit{Signal: x.GetSignal()}
		if x.GetSignal() == "" {
			code := int(x.GetCode())
			result.Exit.Code = &code
		}
	}
	return result
}

func content(parts []*toolsv1.Content) []agents.Content {
	var kept []agents.Content
	for _, p := range parts {
		kept = append(kept, agents.Content{Type: "text", Text: p.GetText()})
	}
	return kept
}
