package tools

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// hookLimit is how long one hook may take to decide.
const hookLimit = 10 * time.Second

// hook is a row that rules over calls. It stays one when it is down: then every call is refused, for what it would have said is not
// known.
type hook struct {
	row    string
	client toolsv1.ToolHookClient
}

// AddHook lets a row rule over calls, from when it is known to be a hook. conn fails while the row does not serve.
func (r *Registry) AddHook(row string, conn grpc.ClientConnInterface) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A new slice: calls in flight hold the old one.
	r.hooks = slices.DeleteFunc(slices.Clone(r.hooks), func(h hook) bool { return h.row == row })
	r.hooks = append(r.hooks, hook{row, toolsv1.NewToolHookClient(conn)})
	slices.SortStableFunc(r.hooks, func(a, b hook) int { return r.order(a.row) - r.order(b.row) })
}

// before asks the hook about a call. It returns the call to go on with, or the result that ends it.
func (h hook) before(ctx context.Context, call *toolsv1.Call, shown *toolsv1.Presentation) (*toolsv1.Call, *toolsv1.Result) {
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	answer, err := h.client.Before(ctx, &toolsv1.BeforeRequest{Call: call, Presentation: shown})
	if err != nil {
		return nil, h.refusal("failed: " + status.Convert(err).Message())
	}
	switch d := answer.GetDecision().(type) {
	case *toolsv1.BeforeResponse_Allow_:
		return call, nil
	case *toolsv1.BeforeResponse_Deny_:
		reason := d.Deny.GetReason()
		if reason == "" {
			reason = fmt.Sprintf("hook %q denied the call", h.row)
		}
		return nil, failure(reason, "ToolDeniedError", "DENIED")
	case *toolsv1.BeforeResponse_Rewrite_:
		return &toolsv1.Call{
			CallId: call.GetCallId(), Name: call.GetName(), Arguments: d.Rewrite.GetArguments(),
			SessionId: call.GetSessionId(), SessionCwd: call.GetSessionCwd(),
		}, nil
	case *toolsv1.BeforeResponse_Ask_:
		return nil, h.refusal("wants a person's approval, and there is nobody to ask")
	default:
		return nil, h.refusal("gave no decision")
	}
}

// after lets the hook replace a result. A hook that fails hides it.
func (h hook) after(ctx context.Context, call *toolsv1.Call, result *toolsv1.Result) *toolsv1.Result {
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	answer, err := h.client.After(ctx, &toolsv1.AfterRequest{Call: call, Result: result})
	if err != nil {
		return h.refusal("failed after the call: " + status.Convert(err).Message())
	}
	if answer.GetResult() != nil {
		return answer.GetResult()
	}
	return result
}

func (h hook) refusal(why string) *toolsv1.Result {
	return failure(fmt.Sprintf("hook %q %s", h.row, why), "ToolDeniedError", "HOOK_FAILED")
}
