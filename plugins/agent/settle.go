package agent

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
)

// How long a tool may take to stop once the instance is deactivated: a little more than the executor's grace periods.
const (
	settleLimit   = 4 * time.Second
	hurryingLimit = 600 * time.Millisecond
)

// settling is the host's connection for tool calls. A call that is cancelled still waits for its result; when the instance is
// deactivated it does so only up to a limit, and then the call is broken off.
type settling struct{ host *sdk.Context }

func (c settling) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	return c.host.Conn().Invoke(ctx, method, args, reply, o...)
}

func (c settling) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, o ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, breakOff := context.WithCancel(ctx) // ends with the caller's
	forget := context.AfterFunc(c.host.Done(), func() {
		limit := time.NewTimer(c.limit())
		defer limit.Stop()
		select {
		case <-limit.C:
		case <-ctx.Done():
		}
		breakOff()
	})
	context.AfterFunc(ctx, func() { forget() })
	return c.host.Conn().NewStream(ctx, desc, method, o...)
}

func (c settling) limit() time.Duration {
	if c.host.Hurrying() {
		return hurryingLimit
	}
	return settleLimit
}
