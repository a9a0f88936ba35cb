package tools

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// hookLimit is how long one hook may take to decide.
const hookLimit = 10 * time.Second

// hook is a row that rules over calls. It stays one when it is down: then every call is refused, for what it would have said is not
// known.
type hook struct {
	row    string
	client toolsv1.ToolHookClient
	modes  []*toolsv1.Mode // of its last instance that served
}

// AddHook lets a row rule over calls, from when it is known to be a hook. conn fails while the row does not serve.
func (r *Registry) AddHook(row string, conn grpc.ClientConnInterface) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hook(row) >= 0 {
		return
	}
	// A new slice: calls in flight hold the old one.
	r.hooks = append(slices.Clone(r.hooks), hook{row: row, client: toolsv1.NewToolHookClient(conn)})
	slices.SortStableFunc(r.hooks, func(a, b hook) int { return r.order(a.row) - r.order(b.row) })
}

// LearnModes asks a hook that serves now for its modes.
func (r *Registry) LearnModes(ctx context.Context, row string) error {
	r.mu.RLock()
	i := r.hook(row)
	if i < 0 {
		r.mu.RUnlock()
		return nil
	}
	client := r.hooks[i].client
	r.mu.RUnlock()
	answer, err := client.Modes(ctx, &toolsv1.ModesRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return err
	}
	defer r.change()()
	if i := r.hook(row); i >= 0 {
		r.hooks = slices.Clone(r.hooks)
		r.hooks[i].modes = answer.GetModes()
	}
	return nil
}

// hook finds a row among the hooks. mu is held.
func (r *Registry) hook(row string) int {
	return slices.IndexFunc(r.hooks, func(h hook) bool { return h.row == row })
}

// modes are those of the first hook that has any. mu is held.
func (r *Registry) modes() []*toolsv1.Mode {
	for _, h := range r.hooks {
		if len(h.modes) > 0 {
			return h.modes
		}
	}
	return nil
}

// Forget forgets all of a row that is gone for good.
func (r *Registry) Forget(row string) {
	defer r.change()()
	r.remove(row)
	r.hooks = slices.DeleteFunc(slices.Clone(r.hooks), func(h hook) bool { return h.row == row })
}

// asker puts a question of a hook to the caller of a call and waits for the answer.
type asker func(ctx context.Context, question *toolsv1.ExecuteResponse_Ask) (allowed bool, err error)

// before asks the hook about a call. It returns the call to go on with, or the result that ends it; an error means that the caller is
// gone.
func (h hook) before(ctx context.Context, call *toolsv1.Call, shown *toolsv1.Presentation, ask asker) (*toolsv1.Call, *toolsv1.Result, error) {
	limited, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	answer, err := h.client.Before(limited, &toolsv1.BeforeRequest{Call: call, Presentation: shown})
	if err != nil {
		return nil, h.refusal("failed: " + status.Convert(err).Message()), nil
	}
	switch d := answer.GetDecision().(type) {
	case *toolsv1.BeforeResponse_Allow_:
		return call, nil, nil
	case *toolsv1.BeforeResponse_Deny_:
		reason := d.Deny.GetReason()
		if reason == "" {
			reason = fmt.Sprintf("hook %q denied the call", h.row)
		}
		return nil, failure(reason, "ToolDeniedError", "DENIED"), nil
	case *toolsv1.BeforeResponse_Rewrite_:
		rewritten := proto.CloneOf(call)
		rewritten.Arguments = d.Rewrite.GetArguments()
		return rewritten, nil, nil
	case *toolsv1.BeforeResponse_Ask_:
		if !call.GetCanAsk() {
			return nil, h.refusal("wants a person's approval, and there is nobody to ask"), nil
		}
		allowed, err := ask(ctx, &toolsv1.ExecuteResponse_Ask{Hook: h.row, Reason: d.Ask.GetReason(), Key: d.Ask.GetKey()})
		if err != nil || allowed {
			return call, nil, err
		}
		return nil, failure("a person did not allow the call", "ToolDeniedError", "NOT_APPROVED"), nil
	default:
		return nil, h.refusal("gave no decision"), nil
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
