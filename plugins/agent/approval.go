package agent

import (
	"context"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// question is a call of the running turn that waits for a person's answer.
type question struct {
	asked  *agents.ToolAsk
	answer chan bool // takes the one answer: whether the call may run
}

// approve puts a hook's question about a call to a person, and says whether the call may run. It waits for the answer however long
// that takes, also when nobody follows the turn just then; only the turn's end ends it.
func (s *session) approve(ctx context.Context, t *turn, callID string, ask *toolsv1.ExecuteResponse_Ask) bool {
	q := &question{
		asked:  &agents.ToolAsk{CallID: callID, Hook: ask.GetHook(), Reason: ask.GetReason(), Key: ask.GetKey()},
		answer: make(chan bool, 1),
	}
	s.mu.Lock()
	if _, covered := s.conv.allowed[q.asked.Key]; covered {
		defer s.mu.Unlock()
		return s.recordLocked(t, &agents.ToolAnswer{CallID: callID, Outcome: agents.OutcomeAllowedForSession})
	}
	if !s.recordLocked(t, q.asked) {
		s.mu.Unlock()
		return false
	}
	s.question = q
	s.mu.Unlock()
	select {
	case allowed := <-q.answer:
		return allowed
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.question == q {
		s.question = nil
		s.recordLocked(t, &agents.ToolAnswer{CallID: callID, Outcome: agents.OutcomeCancelled})
	}
	return false
}

// answer takes a person's answer to the call that asks. It is in the log when the call goes on. One to another call comes too late.
func (s *session) answer(callID string, outcome agents.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReleased() {
		return errReleased
	}
	q := s.question
	if q == nil || q.asked.CallID != callID {
		return nil
	}
	s.question = nil
	if outcome == agents.OutcomeAllowedForSession && q.asked.Key == "" {
		outcome = agents.OutcomeAllowed
	}
	logged := s.recordLocked(s.turn, &agents.ToolAnswer{CallID: callID, Outcome: outcome})
	q.answer <- logged && outcome != agents.OutcomeRejected
	return nil
}
