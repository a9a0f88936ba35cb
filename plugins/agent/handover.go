package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	for id, claim := range a.inherited {
		c.Sessions[id] = claim
	}
	for id := range a.sessions {
		c.Sessions[id] = a.claim
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
	a.retired.Store(true)
	for _, s := range a.live() {
		s.retire()
	}
	if reason != pluginv1.RetireRequest_REASON_RELOAD || len(a.live()) == 0 {
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
func (a *agent) resume(ctx context.Context) error {
	a.retired.Store(false)
	a.mu.Lock()
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

// elsewhere is the error of a session that runs in another instance of the row.
type elsewhere struct{ claim string }

func (e *elsewhere) Error() string { return "the session runs in the instance that holds " + e.claim }

// forwarded is true for a call that another instance of the row has sent here because of a claim.
func forwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, api.MetadataClaim)) > 0
}

// passOn makes a call where the session runs. It is false when the session no longer does.
func (a *agent) passOn(ctx context.Context, id string, to *elsewhere, call func(context.Context, agentsv1.AgentsClient) error) (bool, error) {
	err := call(sdk.WithClaim(ctx, to.claim), agentsv1.NewAgentsClient(a.host.Conn()))
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
