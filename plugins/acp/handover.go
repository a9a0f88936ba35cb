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
	Unwritten  []stdio.Frame `json:"unwritten,omitempty"`
}

// promptState is a prompt without an answer.
type promptState struct {
	Line      uint64     `json:"line"`
	Request   jsonrpc.ID `json:"request"`
	SessionID string     `json:"session"`
	PromptID  string     `json:"prompt"`
	Cancelled bool       `json:"cancelled,omitempty"`
	Seq       uint64     `json:"seq,omitempty"`
	View      view       `json:"view"`
	// Asked is the question that the turn waits for.
	Asked *askedState `json:"asked,omitempty"`
}

// answering is a prompt whose answer is on its way to stdout.
type answering struct {
	prompt promptState
	queued bool // with the lease, which has it until stdout has taken it
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
	s := p.brief()
	s.Cancelled, s.Seq, s.View = p.cancelled, p.seq, p.view
	for i, c := range s.View.Open {
		if c.Shown != nil && len(c.Shown.Title)+len(c.Shown.RawInput) > maxShownBytes {
			s.View.Open[i].Shown = nil
		}
	}
	return s
}

// brief is what has to be known about the prompt after a crash. mu is held.
func (p *prompt) brief() promptState {
	s := promptState{Line: p.request.line, Request: p.request.id, SessionID: p.session.id, PromptID: p.id}
	if q := p.question; q != nil {
		s.Asked = &askedState{q.id, q.callID, q.session, q.heard}
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
	return s
}

// keep waits until the checkpoint has what is so now: what the editor is told next must hold after a crash.
func (b *bridge) keep() {
	kept := make(chan struct{})
	b.mu.Lock()
	b.waiting = append(b.waiting, kept)
	b.mu.Unlock()
	signal(b.dirty)
	select {
	case <-kept:
	case <-b.work.Done(): // the last checkpoint has it
	}
}

// save keeps the checkpoint up to date, for a successor after a crash. A prompt's line need not come again once the checkpoint has it.
// A prompt whose answer stdout may lack stays in it: the host knows whether the answer is due.
func (b *bridge) save() {
	for {
		select {
		case <-b.dirty:
		case <-b.work.Done():
			return
		}
		b.mu.Lock()
		now := b.state()
		var taken []*prompt
		for p := range b.prompts {
			if p.accepted {
				now.Prompts = append(now.Prompts, p.brief())
				if !p.taken {
					taken = append(taken, p)
				}
			}
		}
		for line, a := range b.answering {
			if a.queued && !b.lease.Answering(line) {
				delete(b.answering, line)
				continue
			}
			now.Prompts = append(now.Prompts, a.prompt)
		}
		waiting := b.waiting
		b.waiting = nil
		b.mu.Unlock()
		if err := b.checkpoint(b.work, now); err != nil {
			if b.work.Err() == nil {
				b.log.Warn("a crash of the editor bridge would lose its sessions", "error", err)
			}
			taken = nil
		}
		b.mu.Lock()
		for _, p := range taken {
			p.taken = true
			b.lease.Take(p.request.line)
		}
		b.mu.Unlock()
		for _, kept := range waiting {
			close(kept)
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
		if !b.lease.Due(saved.Line) {
			continue // its answer has reached the editor
		}
		b.lease.Take(saved.Line)
		b.taken = append(b.taken, saved.Line)
		s := b.sessions[saved.SessionID]
		if s == nil { // closed while its last turn ended
			s = &session{b: b, id: saved.SessionID}
			b.sessions[s.id] = s
		}
		b.inFlight++
		p := b.newPrompt(s, &request{b: b, id: saved.Request, method: methodPrompt, line: saved.Line}, saved.PromptID)
		p.accepted, p.taken, p.begun = true, true, true
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
	b.saved = state{}
}

// lost answers a prompt whose instance crashed. Its turn, which nobody watches any more, has been cancelled.
func (p *prompt) lost(context.Context, *request) {
	p.request.respond(jsonrpc.Fail(p.request.id, turnFailed(errCrashed.Error())), p.b.withdrawal(p)...)
}

var errCrashed = errors.New("the editor bridge crashed while it ran; what it did is in the session")
