package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	p := r.find(call.GetName())
	r.mu.RUnlock()
	e := &execution{stream: stream, call: call}
	if p == nil {
		return e.finish(failure(fmt.Sprintf("unknown tool %q", call.GetName()), "ToolNotFoundError", "UNKNOWN_TOOL"))
	}
	result, err := e.run(p)
	if err != nil {
		return err
	}
	return e.finish(result)
}

// execution is one call on its way through the pipeline. It belongs to the goroutine of its handler.
type execution struct {
	stream    callerStream
	call      *toolsv1.Call
	presented bool
	started   bool
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
	// It ends when the handler returns, at the latest: the caller's stream is over then.
	go forwardCancel(e.stream, out, cancel)
	for {
		event, err := out.Recv()
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

// pass hands an event of the provider on, in the order that the seam promises: presentation, started, output.
func (e *execution) pass(event *toolsv1.ExecuteResponse) error {
	switch {
	case event.GetPresentation() != nil:
		e.presented = true
		if err := e.stream.Send(event); err != nil {
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
	if e.presented {
		return nil
	}
	e.presented = true
	return e.stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Presentation{Presentation: generic(e.call)}})
}

func (e *execution) finish(result *toolsv1.Result) error {
	if err := e.present(); err != nil {
		return err
	}
	return e.stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: result}})
}

// forwardCancel carries a cancel to the provider; a caller that went away without one ends the provider's call.
func forwardCancel(in callerStream, out providerStream, gone context.CancelFunc) {
	for {
		request, err := in.Recv()
		if errors.Is(err, io.EOF) {
			_ = out.CloseSend()
			return
		}
		if err != nil {
			gone()
			return
		}
		if request.GetCancel() != nil {
			_ = out.Send(request)
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
