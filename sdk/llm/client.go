package llm

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/llmv1"
)

// ErrCut is the error of an answer that ended without saying why.
var ErrCut = errors.New("the model's answer was cut")

// Client calls the seam. Its plugin injects [Seam].
type Client struct{ rpc llmv1.LlmClient }

// NewClient returns a client on a connection: that of an [sdk.Context].
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{rpc: llmv1.NewLlmClient(conn)}
}

// Models returns the models that a request may name, the default first. It may return none: there is but the default.
func (c *Client) Models(ctx context.Context) ([]*ModelInfo, error) {
	answer, err := c.rpc.Models(ctx, &llmv1.ModelsRequest{})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	if err != nil {
		return nil, callError(ctx, err)
	}
	return answer.GetModels(), nil
}

// Generate sends a request and calls on with each event of the answer, in order, from this goroutine; it returns why the
// answer ended. When on returns an error the request is cancelled and the error returned. An error's text is what the adapter
// said, for a person to read; status.Code tells its kind. When ctx ended, the error is that of ctx.
func (c *Client) Generate(ctx context.Context, req *Request, on func(*Event) error) (Reason, error) {
	return c.Continue(ctx, History{}, req, on)
}

// Continue is [Client.Generate] with messages that go before those of the request.
func (c *Client) Continue(ctx context.Context, h History, req *Request, on func(*Event) error) (Reason, error) {
	streamCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.Generate(streamCtx, req, grpc.ForceCodecV2(withPrefix(h.encoded)))
	if err != nil {
		return 0, callError(ctx, err)
	}
	var finish *llmv1.Finish
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if finish == nil {
				return 0, ErrCut
			}
			return finish.GetReason(), nil
		}
		if err != nil {
			return 0, callError(ctx, err)
		}
		if finish != nil {
			return 0, errors.New("the model's answer went on after its finish")
		}
		if finish = event.GetFinish(); finish != nil {
			continue
		}
		if err := on(event); err != nil {
			return 0, err
		}
	}
}

// callError is the error of a failed call as its caller wants it: without the words of gRPC.
func callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	return &Error{status: s}
}

// Error is a failure that an adapter, or the way to it, reported.
type Error struct{ status *status.Status }

// Error is what the adapter said.
func (e *Error) Error() string { return e.status.Message() }

// GRPCStatus makes status.Code and status.FromError work.
func (e *Error) GRPCStatus() *status.Status { return e.status }
