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
	p, hooks := r.find(call.GetName()), r.hooks
	r.mu.RUnlock()
	e := &execution{stream: stream, call: call, limit: r.limit}
	if p == nil {
		return e.finish(failure(fmt.Sprintf("unknown tool %q", call.GetName()), "ToolNotFoundError", "UNKNOWN_TOOL"))
	}
	result, err := e.runHooked(p, hooks)
	if err != nil {
		return err
	}
	return e.finish(result)
}

// execution is one call on its way through the pipeline. It belongs to the goroutine of its handler.
type execution struct {
	stream  callerStream
	call    *toolsv1.Call
	limit   time.Duration
	shown   *toolsv1.Presentation // the last presentation that the caller got; nil: none
	started bool
}

// runHooked executes the call between its hooks. Without hooks it costs nothing more.
func (e *execution) runHooked(p *provider, hooks []hook) (*toolsv1.Result, error) {
	if len(hooks) > 0 {
		refused, err := e.ask(p, hooks)
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

// ask shows the call and asks the hooks about it, in the order of their rows; each sees what the one before made of it.
func (e *execution) ask(p *provider, hooks []hook) (refused *toolsv1.Result, err error) {
	shown := generic(e.call)
	if answer, err := p.client.Present(e.stream.Context(), &toolsv1.PresentRequest{Call: e.call}); err == nil && answer.GetPresentation() != nil {
		shown = answer.GetPresentation()
	}
	if err := e.show(shown); err != nil {
		return nil, err
	}
	for _, h := range hooks {
		call, refused := h.before(e.stream.Context(), e.call, shown)
		if refused != nil {
			return refused, nil
		}
		e.call = call
	}
	return nil, nil
}

// run executes the call at its provider. Whatever goes wrong there is a result; an error means that the caller is gone.
func (e *execution) run(p *provider) (*toolsv1.Result, error) {
	ctx, cancel := context.WithCancel(e.stream.Context())
	defer cancel()
	out, err := p.client.Execute(ctx)
	if err == nil {
		err = out.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Call{Call: e.call}})
	}
	if err != nil {
		return providerFailure(err), nil
	}
	stopper := &stopper{out: out, cancel: cancel}
	var timedOut atomic.Bool
	timer := time.AfterFunc(e.limit, func() {
		timedOut.Store(true)
		stopper.stop()
	})
	defer timer.Stop()
	defer stopper.done()
	// It ends when the handler returns, at the latest: the caller's stream is over then.
	go forwardCancel(e.stream, stopper)
	for {
		event, err := out.Recv()
		if timedOut.Load() && (err != nil || event.GetResult() != nil) {
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

// stopper ends a provider's call: first it asks, then it breaks the stream.
type stopper struct {
	mu     sync.Mutex // Send must not be called twice at once
	out    providerStream
	cancel context.CancelFunc
	timer  *time.Timer
}

// ask asks the provider to stop; its result still comes.
func (s *stopper) ask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Cancel_{Cancel: &toolsv1.ExecuteRequest_Cancel{}}})
}

func (s *stopper) stop() {
	s.ask()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(stopLimit, s.cancel)
}

func (s *stopper) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
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

// forwardCancel carries a cancel to the provider; a caller that went away without one ends the provider's call.
func forwardCancel(in callerStream, s *stopper) {
	for {
		request, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			s.cancel()
			return
		}
		if request.GetCancel() != nil {
			s.ask()
		}
	}
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
