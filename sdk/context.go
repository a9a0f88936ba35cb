package sdk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// Context is what an active instance has of its host. It is made for one activation and may be used from any goroutine until
// the instance is deactivated; RegisterService only during activation.
type Context struct {
	row        string
	generation uint32
	restored   []byte
	crash      string
	log        hclog.Logger
	conn       *grpc.ClientConn
	host       pluginv1.HostClient
	server     *grpc.Server

	done     context.Context // ends when the instance is deactivated
	stop     context.CancelFunc
	running  sync.WaitGroup // what Go started
	hurrying atomic.Bool

	mu        sync.Mutex
	effects   []effect
	onRetire  []func(context.Context, RetireReason)
	onResume  []func(context.Context, []byte) error
	isRetired bool
	retired   chan struct{} // closed when the instance is asked to retire, replaced when it resumes
}

type effect struct {
	name string
	undo func(context.Context) error
}

// Row is the id of the configuration's row: the identity of this instance in its calls.
func (c *Context) Row() string { return c.row }

// Generation counts the instances of the row, from 1.
func (c *Context) Generation() uint32 { return c.generation }

// Log writes to the host's log.
func (c *Context) Log() hclog.Logger { return c.log }

// Conn is the connection to the host for the generated clients of injected seams.
func (c *Context) Conn() grpc.ClientConnInterface { return c.conn }

// Done is cancelled when the instance is deactivated: streams that would never end must end then.
func (c *Context) Done() context.Context { return c.done }

// Retired is closed when the instance has been asked to retire. An instance that resumes has a new one.
func (c *Context) Retired() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retired
}

// Hurrying is true once the host stops: grace periods are cut to 500 ms.
func (c *Context) Hurrying() bool { return c.hurrying.Load() }

// RegisterService registers the implementation of a seam the manifest provides; the generated Register…Server functions call
// it with the Context as their first argument.
func (c *Context) RegisterService(desc *grpc.ServiceDesc, impl any) {
	c.server.RegisterService(desc, impl)
}

// Effect registers what undoes something done during activation. Effects are undone last in first out, each awaited, after
// the calls in flight have returned; one that fails is logged and the rest still run.
func (c *Context) Effect(name string, undo func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.effects = append(c.effects, effect{name, undo})
}

// Go runs a goroutine that belongs to the instance: its context ends with the instance, and deactivation waits for it. An error
// it returns before is logged; a panic is contained and logged.
func (c *Context) Go(name string, run func(context.Context) error) {
	c.running.Add(1)
	go func() {
		defer c.running.Done()
		defer func() {
			if p := recover(); p != nil {
				c.log.Error("goroutine panicked", "goroutine", name, "panic", fmt.Sprint(p), "stack", stack())
			}
		}()
		if err := run(c.done); err != nil && c.done.Err() == nil {
			c.log.Error("goroutine ended", "goroutine", name, "error", err)
		}
	}()
}

// RetireReason says why an instance retires.
type RetireReason = pluginv1.RetireRequest_Reason

// OnRetire registers what happens when the instance is asked to take no new work: release what a successor needs. All
// registered functions run, in order, before the host goes on.
func (c *Context) OnRetire(f func(context.Context, RetireReason)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRetire = append(c.onRetire, f)
}

// OnResume registers what takes a retired instance back into service when its successor did not come up: undo what the functions of
// OnRetire did. It gets the row's checkpoint, which the successor may have left. A plugin that has those but no OnResume is not
// resumed; its program is started anew.
func (c *Context) OnResume(f func(ctx context.Context, checkpoint []byte) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onResume = append(c.onResume, f)
}

// Restored is the checkpoint that the row's last instance left; nil for the first.
func (c *Context) Restored() []byte { return c.restored }

// Crash says how the row's last instance died, when it did so unasked; empty when it did not.
func (c *Context) Crash() string { return c.crash }

// Checkpoint leaves state with the host for the row's next instance, after a reload or a crash. At most 1 MiB.
func (c *Context) Checkpoint(ctx context.Context, state []byte) error {
	_, err := c.host.Checkpoint(ctx, &pluginv1.CheckpointRequest{State: state})
	return err
}

// Claim allots a key ("bash" gives "bash-7") and binds it to this instance: calls of the seam made with [WithClaim] and the key
// come here, whatever is active.
func (c *Context) Claim(ctx context.Context, seam Seam, prefix string) (string, error) {
	answer, err := c.host.Claim(ctx, &pluginv1.ClaimRequest{Seam: seam.Name, Prefix: prefix})
	return answer.GetKey(), err
}

// TakeOver binds a key that another instance has claimed to this one.
func (c *Context) TakeOver(ctx context.Context, seam Seam, key string) error {
	_, err := c.host.TakeOver(ctx, &pluginv1.TakeOverRequest{Seam: seam.Name, Key: key})
	return err
}

// Allotted tells whether a key was ever allotted, by this host or by one before it.
func (c *Context) Allotted(ctx context.Context, key string) (bool, error) {
	answer, err := c.host.Allotted(ctx, &pluginv1.AllottedRequest{Key: key})
	return answer.GetAllotted(), err
}

// Release ends a claim.
func (c *Context) Release(ctx context.Context, seam Seam, key string) error {
	_, err := c.host.Release(ctx, &pluginv1.ReleaseRequest{Seam: seam.Name, Key: key})
	return err
}

// WithClaim makes calls carry a claim's key.
func WithClaim(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, api.MetadataClaim, key)
}

// Caller is the row that made an incoming call.
func Caller(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, api.MetadataCaller); len(values) > 0 {
		return values[0]
	}
	return ""
}

// retire runs the registered functions, once until the instance resumes.
func (c *Context) retire(ctx context.Context, reason RetireReason) {
	if reason == pluginv1.RetireRequest_REASON_SHUTDOWN {
		c.hurrying.Store(true)
	}
	c.mu.Lock()
	if c.isRetired {
		c.mu.Unlock()
		return
	}
	c.isRetired = true
	close(c.retired)
	functions := c.onRetire
	c.mu.Unlock()
	for _, f := range functions {
		f(ctx, reason)
	}
}

// resume takes the instance back into service.
func (c *Context) resume(ctx context.Context, checkpoint []byte) error {
	c.mu.Lock()
	isRetired, functions, can := c.isRetired, c.onResume, len(c.onRetire) == 0 || len(c.onResume) > 0
	c.mu.Unlock()
	if !isRetired {
		return nil
	}
	if !can {
		return errors.New("the plugin cannot take back what it let go")
	}
	for _, f := range functions {
		if err := f(ctx, checkpoint); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isRetired = false
	c.retired = make(chan struct{})
	return nil
}

// unwind ends the instance's goroutines and undoes its effects. It returns what failed.
func (c *Context) unwind(ctx context.Context) []error {
	c.stop()
	var failed []error
	waited := make(chan struct{})
	go func() {
		c.running.Wait()
		close(waited)
	}()
	select {
	case <-waited:
	case <-ctx.Done():
		failed = append(failed, errors.New("goroutines still run"))
	}
	c.mu.Lock()
	effects := c.effects
	c.effects = nil
	c.mu.Unlock()
	for i := len(effects) - 1; i >= 0; i-- {
		if err := undo(ctx, effects[i]); err != nil {
			c.log.Error("effect was not undone", "effect", effects[i].name, "error", err)
			failed = append(failed, fmt.Errorf("%s: %w", effects[i].name, err))
		}
	}
	return failed
}

func undo(ctx context.Context, e effect) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return e.undo(ctx)
}
