package tool

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Serve serves a plugin's tools, listed in this order. Call it once during activation; the manifest provides [Provider].
func Serve(c *sdk.Context, tools ...Tool) error {
	s := &server{log: c.Log(), byName: map[string]*Tool{}}
	for i := range tools {
		t := &tools[i]
		if t.err != nil {
			return fmt.Errorf("tool %q: %w", t.name, t.err)
		}
		if s.byName[t.name] != nil {
			return fmt.Errorf("tool %q is already registered", t.name)
		}
		s.byName[t.name] = t
		s.tools = append(s.tools, t)
	}
	toolsv1.RegisterToolProviderServer(c, s)
	return nil
}

// server answers the host. It does not change after Serve.
type server struct {
	toolsv1.UnimplementedToolProviderServer
	log    hclog.Logger
	tools  []*Tool
	byName map[string]*Tool
}

func (s *server) List(ctx context.Context, _ *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	answer := &toolsv1.ListResponse{}
	for _, t := range s.tools {
		listed, err := t.list(ctx)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		answer.Tools = append(answer.Tools, listed)
	}
	return answer, nil
}

func (s *server) Present(ctx context.Context, req *toolsv1.PresentRequest) (*toolsv1.PresentResponse, error) {
	return &toolsv1.PresentResponse{Presentation: s.presentation(ctx, newCall(req.GetCall()))}, nil
}

func (s *server) presentation(ctx context.Context, call *Call) *toolsv1.Presentation {
	if t := s.byName[call.Name]; t != nil {
		return t.presentation(ctx, call)
	}
	return generic(call)
}

func (s *server) Execute(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetCall() == nil {
		return status.Error(codes.InvalidArgument, "the first request must be the call")
	}
	call := newCall(first.GetCall())
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() { // ends with the stream, which ends when this handler returns
		for {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			if req.GetCancel() != nil {
				cancel(ErrCancelled)
			}
		}
	}()

	err = stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Presentation{Presentation: s.presentation(ctx, call)}})
	if err != nil {
		return err
	}
	call.out.open(func(text string) error {
		return stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Output_{
			Output: &toolsv1.ExecuteResponse_Output{Data: text}}})
	})
	result := toResult(s.run(ctx, call))
	call.out.close()
	return stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: result}})
}

// run runs a call. A panic of the tool is an error of this call only.
func (s *server) run(ctx context.Context, call *Call) (_ Result, err error) {
	t := s.byName[call.Name]
	if t == nil {
		return Result{}, &Error{Name: "ToolNotFoundError", Code: "UNKNOWN_TOOL", Message: fmt.Sprintf("unknown tool %q", call.Name)}
	}
	arguments, err := t.check(call.Arguments)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("tool panicked", "tool", t.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("tool %q panicked: %v", t.name, p)
		}
	}()
	return t.run(ctx, call, arguments)
}
