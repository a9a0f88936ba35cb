package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Client calls the tools of all active providers through the host's pipeline: seam [Tools].
type Client struct{ tools toolsv1.ToolsClient }

// NewClient returns a client on a plugin's connection, [sdk.Context.Conn].
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{tools: toolsv1.NewToolsClient(conn)}
}

// List returns the tools a model can call, and the modes in which hooks can rule over the calls, the default first.
func (c *Client) List(ctx context.Context) ([]*toolsv1.Tool, []*toolsv1.Mode, error) {
	answer, err := c.tools.List(ctx, &toolsv1.ListRequest{})
	return answer.GetTools(), answer.GetModes(), err
}

// Watch is told what happens before the result, in order, from the goroutine that called Execute. Any function may be nil.
type Watch struct {
	// Presented says how to show the call: first, and again when a hook rewrote the arguments.
	Presented func(*toolsv1.Presentation)
	// Started: the tool runs now. Not called when it never ran.
	Started func()
	// Output is appended to the call's terminal.
	Output func(text string)
	// Ask puts a hook's question to a person and returns the answer; it should return when its context ends, which is when the call is
	// cancelled. Without it hooks that ask refuse the call.
	Ask func(ctx context.Context, question *toolsv1.ExecuteResponse_Ask) (allowed bool)
}

// cancelLimit is how long a cancelled call may take to give its result.
const cancelLimit = 10 * time.Second

// Execute runs a call to its result; a tool that fails is a result, too. When ctx ends, the call is cancelled and its result
// still awaited, so that what the tool ran is over when Execute returns; a tool that does not stop within ten seconds is
// given up with an error.
func (c *Client) Execute(ctx context.Context, call *toolsv1.Call, w Watch) (*toolsv1.Result, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if w.Ask != nil {
		call = proto.CloneOf(call)
		call.CanAsk = true
	}
	streamCtx, breakOff := context.WithCancelCause(context.WithoutCancel(ctx))
	defer breakOff(nil)
	raw, err := c.tools.Execute(streamCtx)
	if err != nil {
		return nil, err
	}
	stream := &execution{BidiStreamingClient: raw}
	if err := stream.send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Call{Call: call}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // io.EOF: Recv has the error
	}

	over := make(chan struct{})
	var canceller sync.WaitGroup
	defer canceller.Wait()
	defer close(over)
	canceller.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		_ = stream.send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Cancel_{Cancel: &toolsv1.ExecuteRequest_Cancel{}}})
		limit := time.NewTimer(cancelLimit)
		defer limit.Stop()
		select {
		case <-over:
		case <-limit.C:
			breakOff(fmt.Errorf("tool %q did not stop within %s of being cancelled", call.GetName(), cancelLimit))
		}
	})
	return stream.receive(ctx, streamCtx, w)
}

// execution is the stream of a call. Answers and the cancel are sent by two goroutines.
type execution struct {
	grpc.BidiStreamingClient[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]
	sending sync.Mutex
}

func (e *execution) send(r *toolsv1.ExecuteRequest) error {
	e.sending.Lock()
	defer e.sending.Unlock()
	return e.Send(r)
}

// receive tells the watcher what comes until the result. caller is the context of the call, which a cancel ends; ctx that of the stream.
func (e *execution) receive(caller, ctx context.Context, w Watch) (*toolsv1.Result, error) {
	for {
		res, err := e.Recv()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return nil, errors.New("the call ended without a result")
		case err != nil:
			return nil, err
		}
		switch event := res.GetEvent().(type) {
		case *toolsv1.ExecuteResponse_Presentation:
			if w.Presented != nil {
				w.Presented(event.Presentation)
			}
		case *toolsv1.ExecuteResponse_Started_:
			if w.Started != nil {
				w.Started()
			}
		case *toolsv1.ExecuteResponse_Output_:
			if w.Output != nil {
				w.Output(event.Output.GetData())
			}
		case *toolsv1.ExecuteResponse_Ask_:
			allowed := w.Ask != nil && w.Ask(caller, event.Ask) && caller.Err() == nil // a cancelled call is never approved
			answer := &toolsv1.ExecuteRequest_Answer{Allowed: allowed}
			_ = e.send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Answer_{Answer: answer}})
		case *toolsv1.ExecuteResponse_Result:
			return event.Result, nil
		}
	}
}
