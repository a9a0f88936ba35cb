// Package hook is the seam of plugins that rule over tool calls: before a call they allow, deny or rewrite it, after it they may
// replace its result.
//
// Hooks run in the order of their rows, each on what the one before left. Whatever goes wrong with a hook (an error, a panic, a
// crash, no answer within ten seconds) refuses the call.
package hook

import (
	"context"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Seam is what a plugin with hooks provides.
var Seam = sdk.Seam{Name: "tool-hook", Service: toolsv1.ToolHook_ServiceDesc.ServiceName, Contribution: true}

// Hook rules over calls. A nil Before allows everything, a nil After changes nothing. Both may be called from many goroutines.
type Hook struct {
	// Before decides on a call, which has not been checked against the tool's schema.
	Before func(ctx context.Context, call *toolsv1.Call) (Decision, error)
	// After returns the result to give; nil: as it is.
	After func(ctx context.Context, call *toolsv1.Call, result *toolsv1.Result) (*toolsv1.Result, error)
	// Modes are ways to rule that a person can choose for a session, the default first. A call names the chosen one; empty: the default.
	Modes []*toolsv1.Mode
}

// Decision is what happens to a call. Make one with Allow, Deny, Ask or Rewrite.
type Decision struct{ response *toolsv1.BeforeResponse }

// Allow lets the call go on to the next hook, and in the end to the tool.
func Allow() Decision {
	return Decision{&toolsv1.BeforeResponse{Decision: &toolsv1.BeforeResponse_Allow_{Allow: &toolsv1.BeforeResponse_Allow{}}}}
}

// Deny refuses the call. The model reads `Error: ` and the reason.
func Deny(reason string) Decision {
	return Decision{&toolsv1.BeforeResponse{Decision: &toolsv1.BeforeResponse_Deny_{Deny: &toolsv1.BeforeResponse_Deny{Reason: reason}}}}
}

// Ask lets a person decide; where nobody can be asked the call is refused. The reason is for people and may be empty. key is what an
// answer for the whole session covers: it also allows later asks of the session with the same key; an empty one covers nothing.
func Ask(reason, key string) Decision {
	return Decision{&toolsv1.BeforeResponse{Decision: &toolsv1.BeforeResponse_Ask_{Ask: &toolsv1.BeforeResponse_Ask{Reason: reason, Key: key}}}}
}

// Rewrite lets the call go on with other arguments, a JSON object.
func Rewrite(arguments string) Decision {
	return Decision{&toolsv1.BeforeResponse{Decision: &toolsv1.BeforeResponse_Rewrite_{Rewrite: &toolsv1.BeforeResponse_Rewrite{Arguments: arguments}}}}
}

// Serve serves the hook; call it during activation.
func Serve(c *sdk.Context, h Hook) {
	toolsv1.RegisterToolHookServer(c, &server{hook: h})
}

type server struct {
	toolsv1.UnimplementedToolHookServer
	hook Hook
}

// Before implements toolsv1.ToolHookServer.
func (s *server) Before(ctx context.Context, req *toolsv1.BeforeRequest) (*toolsv1.BeforeResponse, error) {
	if s.hook.Before == nil {
		return Allow().response, nil
	}
	decision, err := s.hook.Before(ctx, req.GetCall())
	if err != nil {
		return nil, err
	}
	if decision.response == nil { // the zero value is no decision, and the host refuses
		return &toolsv1.BeforeResponse{}, nil
	}
	return decision.response, nil
}

// After implements toolsv1.ToolHookServer.
func (s *server) After(ctx context.Context, req *toolsv1.AfterRequest) (*toolsv1.AfterResponse, error) {
	if s.hook.After == nil {
		return &toolsv1.AfterResponse{}, nil
	}
	result, err := s.hook.After(ctx, req.GetCall(), req.GetResult())
	return &toolsv1.AfterResponse{Result: result}, err
}

// Modes implements toolsv1.ToolHookServer.
func (s *server) Modes(context.Context, *toolsv1.ModesRequest) (*toolsv1.ModesResponse, error) {
	return &toolsv1.ModesResponse{Modes: s.hook.Modes}, nil
}
