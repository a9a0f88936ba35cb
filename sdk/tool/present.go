package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Presentation is what a person sees of a call before its result. What is left zero is as it would be without it.
type Presentation struct {
	Title string
	Kind  Kind
	// RawInput is what a person would call the input, any JSON value.
	RawInput any
	// TerminalCwd, absolute, says that the output is that of a terminal, and where its command runs.
	TerminalCwd string
}

// Kind is the kind of a call, as editors know it.
type Kind = toolsv1.Presentation_Kind

// The kinds of calls.
const (
	KindRead    = toolsv1.Presentation_KIND_READ
	KindEdit    = toolsv1.Presentation_KIND_EDIT
	KindDelete  = toolsv1.Presentation_KIND_DELETE
	KindMove    = toolsv1.Presentation_KIND_MOVE
	KindSearch  = toolsv1.Presentation_KIND_SEARCH
	KindExecute = toolsv1.Presentation_KIND_EXECUTE
	KindThink   = toolsv1.Presentation_KIND_THINK
	KindFetch   = toolsv1.Presentation_KIND_FETCH
	KindOther   = toolsv1.Presentation_KIND_OTHER
)

// presentLimit is how long a presenter may take before a person sees the generic presentation instead.
const presentLimit = 5 * time.Second

// presentation is how a person sees a call of the tool: the tool's own way if it has one and it works, else the generic one.
func (t *Tool) presentation(ctx context.Context, call *Call) *toolsv1.Presentation {
	p, err := t.ownPresentation(ctx, call)
	if err != nil {
		return generic(call)
	}
	return p
}

func (t *Tool) ownPresentation(ctx context.Context, call *Call) (_ *toolsv1.Presentation, err error) {
	arguments, err := t.check(call.Arguments)
	if err != nil || t.present == nil {
		return generic(call), err
	}
	ctx, cancel := context.WithTimeout(ctx, presentLimit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	own, err := t.present(ctx, call, arguments)
	if err != nil {
		return nil, err
	}
	p := generic(call)
	if own.Title != "" {
		p.Title = validText(own.Title)
	}
	if own.Kind != toolsv1.Presentation_KIND_UNSPECIFIED {
		p.Kind = own.Kind
	}
	if own.RawInput != nil {
		if p.RawInput, err = toJSON(own.RawInput); err != nil {
			return nil, err
		}
	}
	if own.TerminalCwd != "" {
		p.Terminal = &toolsv1.Terminal{Cwd: validText(own.TerminalCwd)}
	}
	return p, nil
}

// generic shows a call by the tool's name and the arguments.
func generic(call *Call) *toolsv1.Presentation {
	p := &toolsv1.Presentation{Title: validText(call.Name), Kind: kindOf(call.Name), RawInput: validText(call.Arguments)}
	switch {
	case strings.TrimSpace(call.Arguments) == "":
		p.RawInput = "{}"
	case !json.Valid([]byte(p.GetRawInput())):
		p.RawInput, _ = toJSON(p.GetRawInput())
	}
	return p
}

func kindOf(name string) Kind {
	switch {
	case strings.HasPrefix(name, "bash"):
		return KindExecute
	case strings.HasPrefix(name, "read"):
		return KindRead
	case strings.HasPrefix(name, "write"), strings.HasPrefix(name, "edit"):
		return KindEdit
	}
	return KindOther
}

// toJSON keeps <, > and & readable.
func toJSON(value any) (string, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
