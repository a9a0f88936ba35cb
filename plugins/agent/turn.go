package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/llmv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/tool"
)

// maxAnswer bounds what a model may say in one step: escaped, the whole of it must fit into one event.
const maxAnswer = 8 << 20

// maxHistory bounds what the model is sent: it must fit into one message.
const maxHistory = api.MaxMessageBytes - 1<<20

var (
	errAnswer  = errors.New("the model's answer is larger than 8 MiB")
	errHistory = errors.New("the conversation is larger than 64 MiB: go on in a new session")
	errEmpty   = errors.New("the model gave an empty answer: send the message again, or choose another model")
)

// turn answers one or more prompts.
type turn struct {
	ctx     context.Context // ends when the turn is to stop; its cause says why
	stop    context.CancelCauseFunc
	prompts []*prompt // the session's lock guards it and the rest
	seq     uint64    // of the event before turn/start
	offset  int64     // where that event ends
	broken  bool      // the log could not take an event
}

func (t *turn) takes(promptID string) bool {
	return t != nil && slices.ContainsFunc(t.prompts, func(p *prompt) bool { return p.id == promptID })
}

// run takes turns until no message waits. done ends when the instance is deactivated: then what waits is logged, unanswered.
func (s *session) run(done context.Context) error {
	for more := true; more; {
		t := &turn{}
		t.ctx, t.stop = context.WithCancelCause(done)
		reason, err := s.take(t)
		more = s.finish(t, reason, err)
	}
	return nil
}

// take runs a turn up to its end, which finish logs.
func (s *session) take(t *turn) (reason agents.Reason, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.agent.host.Log().Error("turn panicked", "session", s.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			reason, err = agents.ReasonError, fmt.Errorf("internal error: %v", p)
		}
	}()
	if err := s.begin(t); err != nil {
		return agents.ReasonError, err
	}
	for first := true; ; first = false {
		if t.ctx.Err() != nil {
			return t.stopped()
		}
		tools, modes, err := s.agent.list.get(t.ctx)
		if t.ctx.Err() != nil {
			return t.stopped()
		}
		if err != nil {
			return agents.ReasonError, fmt.Errorf("list the tools: %s", status.Convert(err).Message())
		}
		if first {
			s.join(t) // messages that came in one burst make one turn
		}
		more, reason, err := s.step(t, first, tools, modes)
		if !more {
			return reason, err
		}
	}
}

// begin opens the turn with the first waiting message and those like it: cancelled ones make a turn of their own.
func (s *session) begin(t *turn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = t
	t.prompts = s.dequeue(s.queue[0].cancelled)
	if t.prompts[0].cancelled {
		t.stop(errCancelled)
	}
	if err := s.repair(); err != nil { // when the end of the last turn could not be written
		return err
	}
	t.seq, t.offset = s.log.seq, s.log.size
	for _, p := range t.prompts {
		s.follow(p.follower, t.seq, t.offset)
	}
	if err := s.append(&agents.TurnStart{}); err != nil {
		return err
	}
	return s.welcome(t.prompts)
}

// join takes the messages that came since the turn began.
func (s *session) join(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	late := s.dequeue(false)
	for _, p := range late {
		s.follow(p.follower, t.seq, t.offset)
	}
	t.prompts = append(t.prompts, late...)
	if err := s.welcome(late); err != nil {
		t.stop(err)
	}
}

// dequeue takes the messages at the queue's head that are cancelled, or are not. The lock is held.
func (s *session) dequeue(cancelled bool) []*prompt {
	n := 0
	for n < len(s.queue) && s.queue[n].cancelled == cancelled {
		n++
	}
	taken := s.queue[:n:n]
	s.queue = slices.Clone(s.queue[n:])
	return taken
}

// welcome logs messages, and after the first one that has words for it the session's title. The lock is held.
func (s *session) welcome(prompts []*prompt) error {
	for _, p := range prompts {
		untitled := s.conv.title == ""
		if err := s.append(&agents.UserMessage{PromptID: p.id, Content: p.content}); err != nil {
			return err
		}
		if !untitled || s.conv.title == "" {
			continue
		}
		s.saveInfo()
		if err := s.append(&agents.SessionTitle{Title: s.conv.title}); err != nil {
			return err
		}
	}
	return nil
}

// stopped is how a turn ends that was told to stop.
func (t *turn) stopped() (agents.Reason, error) {
	cause := context.Cause(t.ctx)
	switch {
	case errors.Is(cause, errCancelled):
		return agents.ReasonAborted, nil
	case errors.Is(cause, context.Canceled):
		return agents.ReasonDisposed, nil
	}
	return agents.ReasonError, cause
}

// step asks the model once and runs the calls it asks for, in their order. Without more the turn is over.
func (s *session) step(t *turn, first bool, tools []*toolsv1.Tool, modes []*toolsv1.Mode) (more bool, _ agents.Reason, _ error) {
	s.record(t, &agents.StepStart{})
	calls, finish, err := s.generate(t, tools)
	switch {
	case t.ctx.Err() != nil: // finish answers the calls
		reason, err := t.stopped()
		return false, reason, err
	case err == errEmpty && !first: //nolint:errorlint // that very error: nothing is left to say about the calls
	case err != nil:
		return false, agents.ReasonError, err
	case finish == llm.MaxTokens:
		return false, agents.ReasonMaxTokens, nil
	case finish == llm.Refused:
		return false, agents.ReasonError, errors.New("the model refused to answer")
	}
	for _, call := range calls {
		if t.ctx.Err() != nil {
			break
		}
		s.execute(t, call, modes)
	}
	if t.ctx.Err() != nil {
		reason, err := t.stopped()
		return false, reason, err
	}
	s.record(t, &agents.StepEnd{})
	return len(calls) > 0, agents.ReasonCompleted, nil
}

// generate sends the conversation to the model and logs the answer as it comes.
func (s *session) generate(t *turn, tools []*toolsv1.Tool) ([]agents.ToolRequest, llm.Reason, error) {
	model, err := s.modelName(t.ctx)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	history := s.conv.history
	s.mu.Unlock()
	if history.Size() > maxHistory {
		return nil, 0, errHistory
	}
	var calls []agents.ToolRequest
	var usage *agents.Usage
	size := 0
	finish, err := s.agent.model.Continue(t.ctx, history, &llm.Request{SessionId: s.id, Tools: tools, Model: model}, func(e *llm.Event) error {
		if size += proto.Size(e); size > maxAnswer {
			return errAnswer
		}
		switch e := e.GetEvent().(type) {
		case *llmv1.GenerateResponse_Retry:
			s.record(t, &agents.ModelRetry{Reason: e.Retry.GetReason(), DelayMS: e.Retry.GetDelayMs()})
		case *llmv1.GenerateResponse_Text:
			s.stream(t, e.Text, &agents.AssistantChunk{Text: e.Text})
		case *llmv1.GenerateResponse_Reasoning:
			s.stream(t, e.Reasoning, &agents.AssistantChunk{Reasoning: e.Reasoning})
		case *llmv1.GenerateResponse_ToolCall:
			calls = append(calls, agents.ToolRequest{CallID: e.ToolCall.GetId(), Name: e.ToolCall.GetName(), Arguments: e.ToolCall.GetArguments()})
		case *llmv1.GenerateResponse_Usage:
			u := e.Usage
			usage = &agents.Usage{InputTokens: u.GetInputTokens(), OutputTokens: u.GetOutputTokens(), ContextWindow: u.GetContextWindow()}
		}
		return nil
	})
	s.mu.Lock()
	message := s.conv.partial()
	if err == nil && finish == llm.Stop && message == nil && len(calls) == 0 {
		err = errEmpty
	}
	if err == nil {
		message = s.conv.answer(calls)
	}
	s.mu.Unlock()
	if message != nil {
		s.record(t, message)
	}
	if usage != nil {
		s.record(t, usage)
	}
	if err != nil {
		return nil, finish, err
	}
	return message.ToolCalls, finish, nil
}

// execute runs one call to its result.
func (s *session) execute(t *turn, call agents.ToolRequest, modes []*toolsv1.Mode) {
	watch := tool.Watch{
		Presented: func(p *toolsv1.Presentation) {
			s.record(t, &agents.ToolCall{CallID: call.CallID, Name: call.Name, Arguments: call.Arguments, Presentation: presentation(p)})
		},
		Started: func() { s.record(t, &agents.ToolStart{CallID: call.CallID}) },
		Output:  func(text string) { s.stream(t, text, &agents.ToolOutput{CallID: call.CallID, Text: text}) },
	}
	if s.canAsk(t) {
		watch.Ask = func(ctx context.Context, ask *toolsv1.ExecuteResponse_Ask) bool {
			return s.approve(ctx, t, call.CallID, ask)
		}
	}
	result, err := s.agent.tools.Execute(t.ctx, &toolsv1.Call{
		CallId: call.CallID, Name: call.Name, Arguments: call.Arguments, SessionId: s.id, SessionCwd: s.conv.created.Cwd,
		Mode: pick(modeOption(modes), s.chosen(optionMode)),
	}, watch)
	if err != nil && err == context.Cause(t.ctx) { //nolint:errorlint // that very error: the call was not made
		return
	}
	if err != nil {
		s.record(t, failure(call.CallID, t.callFailure(err)))
		return
	}
	s.record(t, toolResult(call.CallID, result))
}

// canAsk is true when somebody who sent a message of the turn shows questions to a person.
func (s *session) canAsk(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(t.prompts, func(p *prompt) bool { return p.canAsk })
}

// callFailure is what a call comes to that gave no result.
func (t *turn) callFailure(err error) callFailure {
	f := callFailure{"ToolCallError", "CALL_FAILED", "Error: " + status.Convert(err).Message()}
	if t.ctx.Err() == nil {
		return f
	}
	reason, _ := t.stopped()
	f.name, f.code = notExecuted[reason].name, notExecuted[reason].code
	if reason == agents.ReasonDisposed {
		f.text = "Error: the agent stopped before the tool did"
	}
	return f
}

// stream records a piece of something that the turn's followers see grow, and waits for them when they lag.
func (s *session) stream(t *turn, text string, data agents.Data) {
	if text != "" {
		s.awaitFollowers(t.ctx)
		s.record(t, data)
	}
}

// record appends an event of the turn. When the log cannot take it, nothing further is recorded and the turn stops.
func (s *session) record(t *turn, data agents.Data) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordLocked(t, data)
}

// recordLocked is record with the lock held. It is false when the event is not in the log.
func (s *session) recordLocked(t *turn, data agents.Data) bool {
	if t.broken {
		return false
	}
	err := s.append(data)
	if errors.Is(err, errTooLarge) {
		if r, ok := data.(*agents.ToolResult); ok {
			err = s.append(failure(r.CallID, callFailure{"ToolResultError", "RESULT_TOO_LARGE", "Error: the tool's result is larger than 64 MiB"}))
		}
	}
	if err != nil {
		t.broken = true
		t.stop(err)
	}
	return err == nil
}

// finish logs the end of a turn and all that it left open, stores it, and tells who follows. It is false when no message waits:
// then the goroutine of the turns is over.
func (s *session) finish(t *turn, reason agents.Reason, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	failed := s.end(reason, why)
	if failed != nil {
		s.agent.host.Log().Error("the turn's end could not be stored", "session", s.id, "error", failed)
	}
	s.saveInfo()
	for _, p := range t.prompts {
		p.follower.settle(failed, s.log.size)
	}
	t.stop(nil)
	s.turn, s.question = nil, nil
	s.running = len(s.queue) > 0
	for f := range s.followers {
		if failed != nil || !s.running {
			f.settle(failed, s.log.size)
		}
	}
	if s.running {
		return true
	}
	if s.closing || s.agent.retired.Load() {
		s.release()
	}
	return false
}

func (s *session) end(reason agents.Reason, why error) error {
	if !s.conv.inTurn {
		return why // it could not even begin
	}
	end := &agents.TurnEnd{Reason: reason}
	if why != nil {
		end.Error = why.Error()
		if st, ok := status.FromError(why); ok {
			end.Error = st.Message()
		}
	}
	for _, data := range s.conv.unfinished(notExecuted[reason], end) {
		if err := s.append(data); err != nil {
			return err
		}
	}
	return s.log.sync()
}

// notExecuted is what the model reads of calls that never ran, by how their turn ended.
var notExecuted = map[agents.Reason]callFailure{
	agents.ReasonAborted:   {"ToolAbortedError", "aborted", "Error: not executed: the turn was cancelled"},
	agents.ReasonDisposed:  {"ToolAbortedError", "disposed", "Error: not executed: the agent stopped"},
	agents.ReasonMaxTokens: {"ToolAbortedError", "max-tokens", "Error: not executed: the answer was cut at the model's limit"},
	agents.ReasonError:     {"ToolAbortedError", "error", "Error: not executed: the turn failed"},
}
