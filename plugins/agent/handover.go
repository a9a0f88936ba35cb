package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// The live sessions of a row outlive its instances. An instance leaves their names in its checkpoint, and its successor opens each
// when it is first needed. After a reload, a session with a turn under way stays with the old instance until the turn is over: the
// old one holds a claim, and the successor sends calls for the session there.

// checkpoint is what the row's next instance is left.
type checkpoint struct {
	// Sessions are the live ones, each with the claim of the instance that may still run it.
	Sessions map[string]string `json:"sessions"`
}

func restore(state []byte) (map[string]string, error) {
	left := checkpoint{Sessions: map[string]string{}}
	if len(state) == 0 {
		return left.Sessions, nil
	}
	if err := json.Unmarshal(state, &left); err != nil {
		return nil, fmt.Errorf("read the last instance's checkpoint: %w", err)
	}
	return left.Sessions, nil
}

// checkpoint leaves the live sessions with the host.
func (a *agent) checkpoint(ctx context.Context) {
	a.checkpointing.Lock()
	defer a.checkpointing.Unlock()
	c := checkpoint{Sessions: map[string]string{}}
	a.mu.Lock()
	for id := range a.sessions {
		c.Sessions[id] = a.claim
	}
	for id, claim := range a.inherited { // also while this instance looks whether it can have it
		c.Sessions[id] = claim
	}
	a.mu.Unlock()
	state, err := json.Marshal(c)
	if err == nil {
		err = a.host.Checkpoint(context.WithoutCancel(ctx), state)
	}
	if err != nil {
		a.host.Log().Warn("live sessions will not survive a reload", "error", err)
	}
}

// retire frees the sessions for the successor, those with a turn under way when it has ended.
func (a *agent) retire(ctx context.Context, reason sdk.RetireReason) {
	replaced := reason == pluginv1.RetireRequest_REASON_RELOAD
	a.mu.Lock()
	a.retired.Store(true)
	a.replaced.Store(replaced)
	a.mu.Unlock()
	for _, s := range a.live() {
		s.retire()
	}
	a.mu.Lock()
	left := len(a.sessions)
	a.mu.Unlock()
	if !replaced || left == 0 {
		return
	}
	claim, err := a.host.Claim(ctx, agents.Seam, "agent")
	if err != nil {
		a.host.Log().Warn("running turns cannot be cancelled through the successor", "error", err)
		return
	}
	a.mu.Lock()
	a.claim = claim
	a.dropClaim()
	a.mu.Unlock()
	a.checkpoint(ctx)
}

// resume goes on without the successor. Sessions that were freed are opened again as they are needed.
// left is the successor's checkpoint: it says which sessions came and went meanwhile.
func (a *agent) resume(ctx context.Context, left []byte) error {
	inherited, err := restore(left)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.retired.Store(false)
	a.replaced.Store(false)
	if len(left) > 0 {
		for id, claim := range inherited {
			if a.sessions[id] != nil {
				delete(inherited, id)
			} else if claim == a.claim {
				inherited[id] = ""
			}
		}
		a.inherited = inherited
	}
	a.releaseClaim()
	a.mu.Unlock()
	a.checkpoint(ctx)
	return nil
}

// dropClaim releases the claim when no session is left. The lock is held.
func (a *agent) dropClaim() {
	if len(a.sessions) == 0 && a.host.Done().Err() == nil {
		a.releaseClaim()
	}
}

// releaseClaim lets the host forget the claim. The lock is held.
func (a *agent) releaseClaim() {
	if a.claim == "" {
		return
	}
	claim := a.claim
	a.claim = ""
	a.host.Go("release "+claim, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return a.host.Release(ctx, agents.Seam, claim)
	})
}

// elsewhere is the error of a session that another instance of the row has: the one that holds the claim, or without one the successor.
type elsewhere struct{ claim string }

func (e *elsewhere) Error() string {
	return "another instance has the session, with the claim " + strconv.Quote(e.claim)
}

// forwarded is true for a call that another instance of the row has sent here because of a claim.
func forwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, api.MetadataClaim)) > 0
}

// active returns where the row's active instance takes calls: the successor, once this one has been replaced.
func (a *agent) active() agentsv1.AgentsClient { return agentsv1.NewAgentsClient(a.host.Conn()) }

// passOn makes a call where the session runs. It is false when the session no longer does.
func (a *agent) passOn(ctx context.Context, id string, to *elsewhere, call func(context.Context, agentsv1.AgentsClient) error) (bool, error) {
	if to.claim == "" {
		return true, call(ctx, a.active())
	}
	err := call(sdk.WithClaim(ctx, to.claim), a.active())
	if code := status.Code(err); code != codes.Aborted && code != codes.NotFound {
		return true, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inherited[id] == to.claim {
		a.inherited[id] = ""
	}
	return false, nil
}

// disown forgets a session that was closed where it ran.
func (a *agent) disown(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inherited, id)
}

// pump hands a stream on.
func pump[M any](from grpc.ServerStreamingClient[M], err error, to grpc.ServerStreamingServer[M]) error {
	for err == nil {
		var m *M
		if m, err = from.Recv(); err == nil {
			err = to.Send(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
