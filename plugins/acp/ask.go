package acp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk/agents"
)

// answerLimit is how long the agent may take to hear of a person's answer.
const answerLimit = 15 * time.Second

// The options of a permission request, by their ids.
const (
	optionAllow   = "allow"
	optionSession = "allow-session"
	optionReject  = "reject"
)

// question is a session/request_permission that a turn waits for. bridge.mu guards answered and heard; the rest does not change.
type question struct {
	prompt   *prompt
	id       jsonrpc.ID
	callID   string
	session  bool // the call can be allowed for the whole session
	answered bool // the person has spoken; whatever comes after that is ignored
	heard    bool // and the agent has been told
}

// ask makes the question of a call, and the request that puts it.
func (p *prompt) ask(v *view, asked *agents.ToolAsk) (*question, []byte, error) {
	q := &question{prompt: p, id: jsonrpc.StringID(rand.Text()), callID: asked.CallID, session: asked.Key != ""}
	params := permissionParams{SessionID: p.session.id, Call: v.asked(asked), Options: []permissionOption{
		{optionAllow, "Allow once", "allow_once"},
	}}
	if q.session {
		params.Options = append(params.Options, permissionOption{optionSession, "Allow for this session", "allow_always"})
	}
	params.Options = append(params.Options, permissionOption{optionReject, "Reject", "reject_once"})
	request, err := jsonrpc.Call(q.id, methodPermission, params)
	return q, request, err
}

// put makes a question the one that its turn waits for: from now on an answer finds it. mu is held.
func (b *bridge) put(q *question) {
	b.questions[q.id.Key()] = q
	q.prompt.question = q
}

// take ends a prompt's question: an answer that comes now is too late. mu is held.
func (b *bridge) take(p *prompt) {
	if p.question != nil {
		delete(b.questions, p.question.id.Key())
		p.question = nil
	}
}

// withdrawal is what the editor is told when a prompt's question is over without its answer: nothing when there is none.
func (b *bridge) withdrawal(p *prompt) [][]byte {
	b.mu.Lock()
	q := p.question
	open := q != nil && !q.answered
	b.mu.Unlock()
	if !open {
		return nil
	}
	withdrawn, err := jsonrpc.Notify(methodCancelRequest, withdrawalParams{q.id})
	if err != nil { // it has a text
		panic(fmt.Sprintf("acp: %v", err))
	}
	return [][]byte{withdrawn}
}

// answered takes the editor's answer to a request of ours. Only the first answer to an open question counts, and none once the prompt
// was cancelled. It is dealt with when the agent has heard of it: until then it comes again to a successor.
func (b *bridge) answered(m jsonrpc.Message, line uint64) {
	b.mu.Lock()
	q := b.questions[m.ID.Key()]
	counts := q != nil && !q.answered && !q.prompt.cancelled
	if q != nil {
		q.answered = true
	}
	b.mu.Unlock()
	if !counts {
		b.lease.Ack(line)
		return
	}
	r := b.begin(m.ID, methodPermission, line)
	b.running.Go(func() { b.passOn(q, outcome(m, q.session), r) })
}

// outcome is what an answer comes to: whatever is not clearly an approval is a rejection.
func outcome(m jsonrpc.Message, session bool) agents.Outcome {
	var result permissionResult
	if m.Error != nil || json.Unmarshal(m.Result, &result) != nil || result.Outcome.Outcome != "selected" {
		return agents.OutcomeRejected
	}
	switch {
	case result.Outcome.OptionID == optionAllow:
		return agents.OutcomeAllowed
	case result.Outcome.OptionID == optionSession && session:
		return agents.OutcomeAllowedForSession
	}
	return agents.OutcomeRejected
}

func (b *bridge) passOn(q *question, o agents.Outcome, r *request) {
	ctx, cancel := context.WithTimeout(b.work, answerLimit)
	defer cancel()
	err := b.agents.Answer(ctx, q.prompt.session.id, q.callID, o)
	switch {
	case err != nil && b.work.Err() != nil:
		b.finish(r) // the line comes again to a successor
		return
	case err != nil:
		b.log.Warn("the agent did not hear of a person's answer", "session", q.prompt.session.id, "call", q.callID, "error", err)
	}
	b.mu.Lock()
	q.heard = true
	b.mu.Unlock()
	b.lease.Ack(r.line)
	b.finish(r)
}
