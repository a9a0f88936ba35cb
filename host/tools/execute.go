package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

type callerStream = grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]

type providerStream = grpc.BidiStreamingClient[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]

// Execute implements toolsv1.ToolsServer.
func (r *Registry) Execute(stream callerStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	call := first.GetCall()
	if call == nil {
		return status.Error(codes.InvalidArgument, "execute: the first request must be the call")
	}
	if err := r.wait(stream.Context()); err != nil {
		return err
	}
	r.mu.RLock()
	p, hooks, limit := r.find(call.GetName()), r.hooks, r.limit
	r.mu.RUnlock()
	e := newExecution(stream, call, limit)
	if p == nil {
		return e.finish(failure(fmt.Sprintf("unknown tool %q", call.GetName()), "ToolNotFoundError", "UNKNOWN_TOOL"))
	}
	result, err := e.runHooked(p, hooks)
	if err != nil {
		return err
	}
	return e.finish(result)
}

// execution is one call on its way through the pipeline. It belongs to the goroutine of its handler; another one, listen, receives what
// the caller says meanwhile.
type execution struct {
	stream    callerStream
	call      *toolsv1.Call
	limit     time.Duration
	shown     *toolsv1.Presentation // the last presentation that the caller got; nil: none
	started   bool
	asked     atomic.Bool   // a question waits for its answer; there is one at a time
	answers   chan bool     // has room for that answer
	cancelled chan struct{} // closed when the caller has cancelled
}

func newExecution(stream callerStream, call *toolsv1.Call, limit time.Duration) *execution {
	e := &execution{stream: stream, call: call, limit: limit, answers: make(chan bool, 1), cancelled: make(chan struct{})}
	// It ends when the handler returns, at the latest: the caller's stream is over then.
	go e.listen()
	return e
}

func (e *execution) listen() {
	for cancelled := false; ; {
		request, err := e.stream.Recv()
		if err != nil {
			return // the end of the call itself is that of its context
		}
		switch request.GetRequest().(type) {
		case *toolsv1.ExecuteRequest_Cancel_:
			if !cancelled {
				cancelled = true
				close(e.cancelled)
			}
		case *toolsv1.ExecuteRequest_Answer_:
			if e.asked.CompareAndSwap(true, false) { // else nobody asked
				e.answers <- request.GetAnswer().GetAllowed()
			}
		}
	}
}

// runHooked executes the call between its hooks. Without hooks it costs nothing more.
func (e *execution) runHooked(p *provider, hooks []hook) (*toolsv1.Result, error) {
	if len(hooks) > 0 {
		refused, err := e.askHooks(p, hooks)
		if refused != nil || err != nil {
			return refused, err
		}
	}
	result, err := e.run(p)
	if err != nil {
		return nil, err
	}
	for _, h := range hooks {
		result = h.after(e.stream.Context(), e.call, result)
	}
	return result, nil
}

// askHooks shows the call and asks the hooks about it, in the order of their rows; each sees what the one before made of it.
func (e *execution) askHooks(p *provider, hooks []hook) (refused *toolsv1.Result, err error) {
	shown := generic(e.call)
	if answer, err := p.client.Present(e.stream.Context(), &toolsv1.PresentRequest{Call: e.call}); err == nil && answer.GetPresentation() != nil {
		shown = answer.GetPresentation()
	}
	if err := e.show(shown); err != nil {
		return nil, err
	}
	for _, h := range hooks {
		call, refused, err := h.before(e.stream.Context(), e.call, shown, e.askCaller)
		if refused != nil || err != nil {
			return refused, err
		}
		e.call = call
	}
	select {
	case <-e.cancelled:
		return cancelledResult(), nil
	default:
		return nil, nil
	}
}

// askCaller puts a hook's question. A cancel is a no.
func (e *execution) askCaller(ctx context.Context, question *toolsv1.ExecuteResponse_Ask) (bool, error) {
	e.asked.Store(true)
	if err := e.stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Ask_{Ask: question}}); err != nil {
		return false, err
	}
	select {
	case allowed := <-e.answers:
		return allowed, nil
	case <-e.cancelled:
		return false, nil
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	}
}

func cancelledResult() *toolsv1.Result {
	return failure("the call was cancelled before it ran", "ToolCancelledError", "CANCELLED")
}

// run executes the call at its provider. Whatever goes wrong there is a result; an error means that the caller is gone.
func (e *execution) run(p *provider) (*toolsv1.Result, error) {
	ctx, breakOff := context.WithCancel(e.stream.Context())
	defer breakOff()
	out, err := p.client.Execute(ctx)
	if err == nil {
		err = out.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Call{Call: e.call}})
	}
	if err != nil {
		return providerFailure(err), nil
	}
	s := supervise(e.cancelled, e.limit, out, breakOff)
	defer s.end()
	for {
		event, err := out.Recv()
		if s.timedOut.Load() && (err != nil || event.GetResult() != nil) {
			return failure(fmt.Sprintf("tool call timed out after %dms", e.limit.Milliseconds()), "ToolTimeoutError", "TOOL_TIMEOUT"), nil
		}
		if err != nil {
			if gone := e.stream.Context().Err(); gone != nil {
				return nil, status.FromContextError(gone).Err()
			}
			return providerFailure(err), nil
		}
		if result := event.GetResult(); result != nil {
			return result, nil
		}
		if err := e.pass(event); err != nil {
			return nil, err
		}
	}
}

// stopLimit is how long a call that reached its limit may take to stop by itself.
const stopLimit = 5 * time.Second

// supervisor asks a provider to stop when the caller cancels or the call has reached its limit; after a limit it breaks the call off in
// the end.
type supervisor struct {
	timedOut atomic.Bool
	over     chan struct{}
	running  sync.WaitGroup
}

func supervise(cancelled <-chan struct{}, limit time.Duration, out providerStream, breakOff context.CancelFunc) *supervisor {
	s := &supervisor{over: make(chan struct{})}
	s.running.Go(func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		for {
			select {
			case <-cancelled:
				cancelled = nil
				askToStop(out)
			case <-timer.C:
				if s.timedOut.Swap(true) {
					breakOff()
					return
				}
				askToStop(out)
				timer.Reset(stopLimit)
			case <-s.over:
				return
			}
		}
	})
	return s
}

func (s *supervisor) end() {
	close(s.over)
	s.running.Wait()
}

func askToStop(out providerStream) {
	_ = out.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Cancel_{Cancel: &toolsv1.ExecuteRequest_Cancel{}}})
}

// pass hands an event of the provider on, in the order that the seam promises: presentation, started, output.
func (e *execution) pass(event *toolsv1.ExecuteResponse) error {
	switch {
	case event.GetPresentation() != nil:
		if err := e.show(event.GetPresentation()); err != nil {
			return err
		}
		return e.start()
	case event.GetOutput() != nil:
		if err := e.start(); err != nil {
			return err
		}
		return e.stream.Send(event)
	default: // the host alone says when a call starts
		return nil
	}
}

func (e *execution) start() error {
	if e.started {
		return nil
	}
	if err := e.present(); err != nil {
		return err
	}
	e.started = true
	return e.stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Started_{Started: &toolsv1.ExecuteResponse_Started{}}})
}

// present makes sure that there is a presentation.
func (e *execution) present() error {
	if e.shown != nil {
		return nil
	}
	return e.show(generic(e.call))
}

// show sends a presentation, unless the caller has it already.
func (e *execution) show(p *toolsv1.Presentation) error {
	if proto.Equal(e.shown, p) {
		return nil
	}
	e.shown = p
	return e.stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Presentation{Presentation: p}})
}

func (e *execution) finish(result *toolsv1.Result) error {
	if err := e.present(); err != nil {
		return err
	}
	return e.stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: result}})
}

// providerFailure is the result of a call whose provider failed in a way that no tool should.
func providerFailure(err error) *toolsv1.Result {
	if errors.Is(err, io.EOF) {
		return failure("the tool ended without a result", "ToolError", "NO_RESULT")
	}
	return failure(status.Convert(err).Message(), "ToolError", "PROVIDER_FAILED")
}

func failure(message, name, code string) *toolsv1.Result {
	return &toolsv1.Result{
		Content: []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: "Error: " + strings.ToValidUTF8(message, "\ufffd")}}},
		IsError: true,
		Error:   &toolsv1.Error{Name: name, Code: code},
	}
}

// generic is how a call is shown whose tool is unknown or did not say.
func generic(call *toolsv1.Call) *toolsv1.Presentation {
	kind := toolsv1.Presentation_KIND_OTHER
	for prefix, k := range map[string]toolsv1.Presentation_Kind{
		"bash": toolsv1.Presentation_KIND_EXECUTE, "read": toolsv1.Presentation_KIND_READ,
		"write": toolsv1.Presentation_KIND_EDIT, "edit": toolsv1.Presentation_KIND_EDIT,
	} {
		if strings.HasPrefix(call.GetName(), prefix) {
			kind = k
		}
	}
	input := call.GetArguments()
	if !json.Valid([]byte(input)) {
		text, _ := json.Marshal(input) // a string always has a JSON form
		input = string(text)
	}
	return &toolsv1.Presentation{Title: call.GetName(), Kind: kind, RawInput: input}
}
