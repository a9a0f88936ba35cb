package acp

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk/agents"
)

// The options that the protocol knows by their own names. The mode is shown twice: as one of the options, and as the session's mode for
// editors that know nothing else.
const (
	optionMode  = "mode"
	optionModel = "model"
)

// options asks what can be chosen for a session. An agent that does not say has nothing to choose from.
func (b *bridge) options(ctx context.Context, sessionID string) []agents.Option {
	options, err := b.agents.Options(ctx, sessionID)
	if err != nil && ctx.Err() == nil && status.Code(err) != codes.Unimplemented {
		b.log.Warn("a session's options are not known", "session", sessionID, "error", err)
	}
	return options
}

// withOptions adds what can be chosen to the answer that opens the session.
func (s *session) withOptions(answer openResult, options []agents.Option) openResult {
	s.note(options)
	if len(options) > 0 {
		answer.Options = configOptions(options)
	}
	for _, o := range options {
		if o.ID != optionMode {
			continue
		}
		answer.Modes = &modeState{Current: o.Current, Available: []mode{}}
		for _, v := range o.Values {
			answer.Modes.Available = append(answer.Modes.Available, mode{v.ID, v.Name, v.Description})
		}
	}
	return answer
}

func configOptions(options []agents.Option) []configOption {
	shown := make([]configOption, 0, len(options))
	for _, o := range options {
		c := configOption{ID: o.ID, Name: o.Name, Type: "select", Current: o.Current, Options: []configValue{}}
		if o.ID == optionMode || o.ID == optionModel {
			c.Category = o.ID
		}
		for _, v := range o.Values {
			c.Options = append(c.Options, configValue{v.ID, v.Name, v.Description})
		}
		shown = append(shown, c)
	}
	return shown
}

// set chooses for the session, and tells of it in both ways: set_mode changes an option, and the option of that name the mode.
func (s *session) set(ctx context.Context, r *request, option, value string) {
	if !s.isLive() {
		r.fail(unknownSession(s.id))
		return
	}
	err := s.b.agents.SetOption(ctx, s.id, option, value)
	if status.Code(err) == codes.NotFound {
		if err = s.b.reload(ctx, s.id); err == nil {
			err = s.b.agents.SetOption(ctx, s.id, option, value)
		}
	}
	if err != nil {
		r.fail(err)
		return
	}
	options, err := s.b.agents.Options(ctx, s.id)
	if err != nil {
		r.fail(err)
		return
	}
	_, newMode := s.note(options)
	if r.method == methodSetOption {
		r.send(append([][]byte{jsonrpc.Answer(r.id, optionsResult{configOptions(options)})}, s.tell(newMode, nil)...)...)
		return
	}
	if newMode == value {
		newMode = ""
	}
	r.send(append([][]byte{jsonrpc.Answer(r.id, empty{})}, s.tell(newMode, options)...)...)
}

// note notes what the editor is going to know of the options. It returns whether that is new, and the mode if that is.
func (s *session) note(options []agents.Option) (changed bool, newMode string) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for _, o := range options {
		if s.known[o.ID] == o.Current {
			continue
		}
		if s.known == nil {
			s.known = map[string]string{}
		}
		s.known[o.ID], changed = o.Current, true
		if o.ID == optionMode {
			newMode = o.Current
		}
	}
	return changed, newMode
}

// tell is what the editor is told of a new mode, and of new options; nothing of what is empty.
func (s *session) tell(newMode string, options []agents.Option) [][]byte {
	var lines [][]byte
	if len(options) > 0 {
		lines = append(lines, line(s.id, update{Kind: kindOptions, Options: configOptions(options)}))
	}
	if newMode != "" {
		lines = append(lines, line(s.id, update{Kind: kindMode, Mode: newMode}))
	}
	return lines
}

// optionChanged is what the editor is told when an option was chosen during the turn, unless it has done that itself.
func (p *prompt) optionChanged() [][]byte {
	s := p.session
	s.b.mu.Lock()
	setting := s.setting
	s.b.mu.Unlock()
	if setting { // the answer to that tells it all
		return nil
	}
	options := s.b.options(p.ctx, s.id)
	changed, newMode := s.note(options)
	if !changed {
		return nil
	}
	return s.tell(newMode, options)
}
