package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk/stdio"
)

// state is the checkpoint: what the row's next instance must know.
type state struct {
	// HandedOver is true when the instance ended in order: its prompts can be followed on from the last event that was shown. What
	// a crash leaves behind has told the editor an unknown part of them.
	HandedOver bool          `json:"handedOver,omitempty"`
	Terminals  bool          `json:"terminals,omitempty"`
	Sessions   []string      `json:"sessions,omitempty"`
	Prompts    []promptState `json:"prompts,omitempty"`
	// Dealt are lines that are dealt with although one before them is not: they come again.
	Dealt     []uint64      `json:"dealt,omitempty"`
	Unwritten []stdio.Frame `json:"unwritten,omitempty"`
}

// promptState is a prompt without an answer.
type promptState struct {
	Request   jsonrpc.ID `json:"request"`
	SessionID string     `json:"session"`
	PromptID  string     `json:"prompt"`
	Cancelled bool       `json:"cancelled,omitempty"`
	Seq       uint64     `json:"seq,omitempty"`
	View      view       `json:"view"`
	// Asked is the question that the turn waits for.
	Asked *askedState `json:"asked,omitempty"`

	line uint64
}

type askedState struct {
	Request jsonrpc.ID `json:"request"`
	CallID  string     `json:"call"`
	Session bool       `json:"session,omitempty"`
	// Heard is true when the agent has been told the answer, and only its event is missing.
	Heard bool `json:"heard,omitempty"`
}

// maxShownBytes is how much of a card that does not run yet goes into the checkpoint, for a question about it to repeat.
const maxShownBytes = 1 << 10

// state is what is left to do about the prompt. mu is held.
func (p *prompt) state() promptState {
	s := promptState{
		Request: p.request.id, SessionID: p.session.id, PromptID: p.id, Cancelled: p.cancelled, Seq: p.seq, View: p.view,
		Asked: p.asked(), line: p.request.line,
	}
	for i, c := range s.View.Open {
		if c.Shown != nil && len(c.Shown.Title)+len(c.Shown.RawInput) > maxShownBytes {
			s.View.Open[i].Shown = nil
		}
	}
	return s
}

// state is the checkpoint as it is now. mu is held.
func (b *bridge) state() state {
	s := state{Terminals: b.terminals, Prompts: slices.Clone(b.handed)}
	for id, session := range b.sessions {
		if session.live {
			s.Sessions = append(s.Sessions, id)
		}
	}
	for _, line := range b.lines {
		if line.done {
			s.Dealt = append(s.Dealt, line.number)
		}
	}
	return s
}

func (p *prompt) asked() *askedState {
	if q := p.question; q != nil {
		return &askedState{q.id, q.callID, q.session, q.heard}
	}
	return nil
}

// save keeps the checkpoint up to date, for a successor after a crash. A prompt's line is dealt with once the checkpoint has it.
func (b *bridge) save() {
	for {
		select {
		case <-b.dirty:
		case <-b.work.Done():
			return
		}
		b.mu.Lock()
		now := b.state()
		for p := range b.prompts {
			if p.accepted {
				now.Prompts = append(now.Prompts, promptState{
					Request: p.request.id, SessionID: p.session.id, PromptID: p.id, line: p.request.line, Asked: p.asked(),
				})
				now.Dealt = append(now.Dealt, p.request.line)
			}
		}
		b.mu.Unlock()
		if err := b.checkpoint(b.work, now); err != nil {
			if b.work.Err() == nil {
				b.log.Warn("a crash of the editor bridge would lose its sessions", "error", err)
			}
			continue
		}
		for _, p := range now.Prompts {
			b.dealtWith(p.line)
		}
	}
}

func (b *bridge) checkpoint(ctx context.Context, s state) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("marshal the checkpoint: %w", err)
	}
	if err := b.c.Checkpoint(ctx, raw); err != nil {
		return fmt.Errorf("leave the checkpoint: %w", err)
	}
	return nil
}

// restore takes over what the instance before has left.
func (b *bridge) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.terminals = b.saved.Terminals
	for _, id := range b.saved.Sessions {
		b.sessions[id] = &session{b: b, id: id, live: true, expected: true}
	}
	for _, saved := range b.saved.Prompts {
		s := b.sessions[saved.SessionID]
		if s == nil { // closed while its last turn ended
			s = &session{b: b, id: saved.SessionID}
			b.sessions[s.id] = s
		}
		b.inFlight++
		p := b.newPrompt(s, &request{b: b, id: saved.Request, method: methodPrompt}, saved.PromptID)
		p.accepted, p.begun = true, true
		p.seq, p.view = saved.Seq, saved.View
		s.prompt = p
		if asked := saved.Asked; asked != nil {
			b.put(&question{
				prompt: p, id: asked.Request, callID: asked.CallID, session: asked.Session, answered: asked.Heard, heard: asked.Heard,
			})
		}
		if b.saved.HandedOver {
			if saved.Cancelled {
				b.cancel(p)
			}
			s.post(turn, p.request, p.resume)
		} else {
			b.cancel(p)
			s.post(turn, p.request, p.lost)
		}
	}
	b.dealt = b.saved.Dealt
	b.saved = state{}
}

// lost answers a prompt whose instance crashed. Its turn, which nobody watches any more, has been cancelled.
func (p *prompt) lost(context.Context, *request) {
	p.request.respond(jsonrpc.Fail(p.request.id, turnFailed(errCrashed.Error())), p.b.withdrawal(p)...)
}

var errCrashed = errors.New("the editor bridge crashed while it ran; what it did is in the session")
