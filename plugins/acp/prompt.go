package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk/agents"
)

// prompt is a session/prompt that has no answer yet. bridge.mu guards accepted, taken, cancelled, begun, force and question; the rest belongs
// to the mailbox that runs it.
type prompt struct {
	b       *bridge
	session *session
	request *request
	id      string
	content []agents.ContentBlock
	command *invocation // nil: it is for the agent

	ctx  context.Context // ends the following of the turn, with a cause
	stop context.CancelCauseFunc

	accepted  bool // the agent has it, and Cancel reaches it
	taken     bool // the checkpoint has it, and its line need not come again
	begun     bool // an event of its turn has been shown
	cancelled bool
	force     *time.Timer
	question  *question // put to the person, and the turn waits for it

	view view
	seq  uint64 // of the last event shown
}

// newPrompt makes the prompt of a request. mu is held.
func (b *bridge) newPrompt(s *session, r *request, id string) *prompt {
	p := &prompt{b: b, session: s, request: r, id: id, view: view{Terminals: b.terminals}}
	p.ctx, p.stop = context.WithCancelCause(b.work)
	r.prompt = p
	b.prompts[p] = struct{}{}
	return p
}

// cancel cancels a prompt in whatever state it is; once is enough. mu is held.
func (b *bridge) cancel(p *prompt) {
	if p.cancelled {
		return
	}
	p.cancelled = true
	if p.command != nil {
		p.stop(context.Canceled)
		return
	}
	p.force = time.AfterFunc(b.cancelLimit, func() { p.stop(errForced) })
	if p.accepted {
		b.running.Go(p.sendCancel)
	}
}

func (p *prompt) sendCancel() {
	ctx, cancel := context.WithTimeout(p.b.work, p.b.cancelLimit)
	defer cancel()
	if err := p.b.agents.Cancel(ctx, p.session.id, p.id); err != nil && ctx.Err() == nil {
		p.b.log.Warn("a turn could not be cancelled", "session", p.session.id, "error", err)
	}
}

// release makes room for the session's next prompt: the answer is on its way.
func (b *bridge) release(p *prompt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.prompts, p)
	b.answering[p.request.line] = &answering{prompt: p.brief()}
	b.take(p)
	if p.session.prompt == p {
		p.session.prompt = nil
	}
	if p.force != nil {
		p.force.Stop()
	}
	p.stop(context.Canceled)
	signal(b.dirty)
}

// run sends the prompt and follows its turn to the end.
func (p *prompt) run(context.Context, *request) {
	events, err := p.send()
	if err != nil {
		p.refused(err)
		return
	}
	end, err := p.follow(events)
	if p.brokeOff(err) {
		end, err = p.rejoin(err)
	}
	p.finish(end, err)
}

// resume follows a turn that the instance before has handed over.
func (p *prompt) resume(context.Context, *request) {
	p.finish(p.subscribe())
}

// send gives the prompt to the agent. A session that the agent has lost, because it crashed, is loaded again.
func (p *prompt) send() (*agents.Events, error) {
	if !p.session.isLive() {
		return nil, unknownSession(p.session.id)
	}
	events, err := p.offer()
	if status.Code(err) == codes.NotFound {
		if err := p.b.reload(p.ctx, p.session.id); err != nil {
			return nil, err
		}
		return p.offer()
	}
	return events, err
}

func (p *prompt) offer() (*agents.Events, error) {
	p.b.mu.Lock()
	cancelled := p.cancelled
	p.b.mu.Unlock()
	events, err := p.b.agents.Prompt(p.ctx, agents.Prompt{
		SessionID: p.session.id, PromptID: p.id, Content: p.content, Cancelled: cancelled, CanAsk: true,
	})
	if err != nil {
		return nil, err
	}
	p.content = nil
	p.b.mu.Lock()
	p.accepted = true
	if p.cancelled && !cancelled {
		p.b.running.Go(p.sendCancel)
	}
	p.b.mu.Unlock()
	signal(p.b.dirty)
	return events, nil
}

// follow shows the turn's events and returns its end.
func (p *prompt) follow(events *agents.Events) (*agents.TurnEnd, error) {
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			err = errors.New("its end is not known")
		}
		if err != nil {
			return nil, err
		}
		if err := p.show(e); err != nil {
			return nil, err
		}
		if end, ok := e.Data.(*agents.TurnEnd); ok {
			return end, nil
		}
		p.shown()
	}
}

// show writes what an event makes for the editor to see. An event is shown whole or not at all.
func (p *prompt) show(e agents.Event) error {
	next := p.view
	next.Open = slices.Clone(p.view.Open)
	lines, err := frames(p.session.id, next.show(e))
	if err != nil {
		return err
	}
	answered := false
	switch data := e.Data.(type) {
	case *agents.ToolAsk:
		q, request, err := p.ask(&next, data)
		if err != nil {
			return err
		}
		p.b.mu.Lock()
		p.b.put(q)
		p.b.mu.Unlock()
		signal(p.b.dirty)
		lines = append(lines, request)
	case *agents.ToolAnswer:
		answered = true
		lines = append(p.b.withdrawal(p), lines...)
	case *agents.SessionOption:
		lines = append(lines, p.optionChanged()...)
	case *agents.ModelRetry:
		p.b.log.Warn("the model is asked again", "session", p.session.id, "reason", data.Reason, "delay_ms", data.DelayMS)
	}
	if len(lines) > 0 {
		err = p.b.lease.Write(p.ctx, lines...)
	}
	_, asked := e.Data.(*agents.ToolAsk)
	if answered && err == nil || asked && err != nil {
		p.b.mu.Lock()
		p.b.take(p)
		p.b.mu.Unlock()
	}
	if err != nil {
		return err
	}
	p.view, p.seq = next, e.Seq
	return nil
}

// shown notes the first event: from now on the turn can be handed over.
func (p *prompt) shown() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if !p.begun {
		p.begun = true
		p.handOver()
	}
}

// handOver stops following the turn, if a successor wants it and can go on: it needs the number of an event, and nothing may wait
// in the mailbox. mu is held.
func (p *prompt) handOver() {
	if p.b.handing && p.begun && !p.session.hasWork() {
		p.stop(errHandover)
	}
}

// brokeOff is true when the stream of events ended without being told to.
func (p *prompt) brokeOff(err error) bool {
	return err != nil && p.ctx.Err() == nil
}

// rejoin goes on with a turn whose events broke off: the agent crashed, or was replaced. A session that was lost is loaded again, which
// ends its open turn.
func (p *prompt) rejoin(why error) (*agents.TurnEnd, error) {
	if err := p.b.reload(p.ctx, p.session.id); err != nil || p.seq == 0 {
		return nil, why
	}
	end, err := p.subscribe()
	if p.brokeOff(err) {
		return nil, why
	}
	return end, err
}

func (p *prompt) subscribe() (*agents.TurnEnd, error) {
	events, err := p.b.agents.Subscribe(p.ctx, p.session.id, p.seq, true)
	if err != nil {
		return nil, err
	}
	return p.follow(events)
}

// refused answers a prompt that the agent did not take.
func (p *prompt) refused(err error) {
	if p.wasCancelled() && p.ctx.Err() != nil { // forced, or the bridge stops
		p.request.answer(promptResult{stopCancelled})
		return
	}
	p.request.fail(err)
}

// finish answers the prompt, or leaves that to the instance that takes over.
func (p *prompt) finish(end *agents.TurnEnd, err error) {
	cause := context.Cause(p.ctx)
	if err != nil && errors.Is(cause, errHandover) {
		p.leave()
		return
	}
	before := p.b.withdrawal(p)
	for _, u := range p.view.closeAll() {
		before = append(before, line(p.session.id, u))
	}
	switch {
	case p.wasCancelled():
		p.request.respond(jsonrpc.Answer(p.request.id, promptResult{stopCancelled}), before...)
	case err != nil:
		if cause == nil {
			cause = errors.New(message(err))
		}
		p.request.respond(jsonrpc.Fail(p.request.id, turnFailed(cause.Error())), before...)
	default:
		stop, failed := stopReason(end)
		if failed != nil {
			p.request.respond(jsonrpc.Fail(p.request.id, failed), before...)
			return
		}
		p.request.respond(jsonrpc.Answer(p.request.id, promptResult{stop}), before...)
	}
}

// leave hands the prompt over: it stays without an answer.
func (p *prompt) leave() {
	p.b.mu.Lock()
	p.b.handed = append(p.b.handed, p.state())
	delete(p.b.prompts, p)
	p.b.take(p)
	if p.force != nil {
		p.force.Stop()
	}
	p.b.mu.Unlock()
	p.request.answered.Store(true)
	p.b.finish(p.request)
}

func (p *prompt) wasCancelled() bool {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return p.cancelled
}

func stopReason(end *agents.TurnEnd) (string, *jsonrpc.Error) {
	switch end.Reason {
	case agents.ReasonCompleted:
		return stopEndTurn, nil
	case agents.ReasonMaxTokens:
		return stopMaxTokens, nil
	case agents.ReasonAborted, agents.ReasonDisposed:
		return stopCancelled, nil
	case agents.ReasonInterrupted:
		return "", turnFailed("it was interrupted by a crash")
	}
	if end.Error == "" {
		return "", turnFailed(fmt.Sprintf("it ended with %q", string(end.Reason)))
	}
	return "", turnFailed(end.Error)
}

func turnFailed(why string) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternal, "turn failed: %s", why)
}

// message is what an error says, without the words of gRPC.
func message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// promptContent reads the blocks of a prompt. Nothing that dsh cannot pass on is dropped.
func promptContent(blocks []json.RawMessage) ([]agents.ContentBlock, error) {
	var content []agents.ContentBlock
	blank := true
	for _, raw := range blocks {
		var block contentBlock
		if err := decode(raw, &block); err != nil {
			return nil, err
		}
		switch {
		case block.Type == "text" && block.Text != nil:
			blank = blank && strings.TrimSpace(*block.Text) == ""
			content = append(content, agents.ContentBlock{Type: agents.BlockText, Text: *block.Text})
		case block.Type == "resource_link" && block.URI != "":
			blank = false
			content = append(content, agents.ContentBlock{Type: agents.BlockResourceLink, URI: block.URI, Name: value(block.Name)})
		case block.Type == "resource" && block.Resource != nil && block.Resource.Text != nil:
			blank = false
			content = append(content, agents.ContentBlock{
				Type: agents.BlockResource, URI: block.Resource.URI, MimeType: block.Resource.MimeType, Text: *block.Resource.Text,
			})
		case block.Type == "resource" && block.Resource != nil:
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "content block of type resource is supported with a text only")
		case block.Type == "text" || block.Type == "resource_link" || block.Type == "resource":
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "content block of type %s is incomplete", block.Type)
		default:
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "content block of type %q is not supported", block.Type)
		}
	}
	if blank {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "empty prompt")
	}
	size := 0
	for _, block := range content {
		size += len(block.Text) + len(block.URI) + len(block.Name)
	}
	if size > maxPromptBytes {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the prompt has %d bytes of text; at most %d MiB are taken", size, maxPromptBytes>>20)
	}
	return content, nil
}
