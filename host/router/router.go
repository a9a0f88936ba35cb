// Package router carries calls between plugins: who may call what, which instance answers, and what a caller hears when its
// provider is gone.
package router

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/host/numbers"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// reportWait is how long a call that lost its connection waits for the word on how the provider died.
const reportWait = 500 * time.Millisecond

// Target is the instance that serves a seam.
type Target struct {
	// Row is the instance's row.
	Row string
	// Conn is the connection to its seams.
	Conn *grpc.ClientConn
	// Exited is closed when its process has ended.
	Exited <-chan struct{}
	// Report says how it ended, once it has.
	Report func() string

	stopped atomic.Bool
	calls   atomic.Int64 // in flight
}

// Stopped says that the instance is being ended on purpose: calls that this breaks are not told of a death.
func (t *Target) Stopped() { t.stopped.Store(true) }

// Router knows who serves what. Its methods may be called from any goroutine; mu guards the maps.
type Router struct {
	numbers *numbers.Counters // of the claims' keys

	mu      sync.RWMutex
	routes  map[string]route // by name: a service, or a contribution to it
	claims  map[claim]*Target
	changed chan struct{} // closed and replaced when a route changes
	held    int           // calls that wait
}

// route is where the calls of a name go: to a target, or nowhere for now.
type route struct {
	target *Target
	held   bool   // a successor is coming: calls wait for it
	down   string // there is none: what calls are told
}

const (
	// holdLimit is how long a call waits for a successor.
	holdLimit = 10 * time.Second
	// maxHeld limits the calls that wait.
	maxHeld = 1000
)

type claim struct{ service, key string }

// New returns a router without routes, which allots the keys of claims by the counters.
func New(n *numbers.Counters) *Router {
	return &Router{numbers: n, routes: map[string]route{}, claims: map[claim]*Target{}, changed: make(chan struct{})}
}

// Contribution is the name under which one of many rows serves a service.
func Contribution(service, row string) string { return service + "@" + row }

// Provide lets the calls of a name go to the target, those that are held first.
func (r *Router) Provide(name string, t *Target) { r.set(name, route{target: t}) }

// Hold keeps the calls of a name waiting for a successor, ten seconds at most.
func (r *Router) Hold(name string) { r.set(name, route{held: true}) }

// Down fails the calls of a name at once, and says why.
func (r *Router) Down(name, why string) { r.set(name, route{down: why}) }

// Remove forgets a name.
func (r *Router) Remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.routes, name)
	r.signal()
}

func (r *Router) set(name string, to route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.routes[name] = to
	r.signal()
}

// signal wakes the calls that wait. mu is held.
func (r *Router) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Claims are the keys that a target holds.
func (r *Router) Claims(t *Target) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keys(t)
}

// keys is Claims with mu held.
func (r *Router) keys(t *Target) (keys []string) {
	for c, holder := range r.claims {
		if holder == t {
			keys = append(keys, c.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Disclaim ends all claims of a target that is gone.
func (r *Router) Disclaim(t *Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c, target := range r.claims {
		if target == t {
			delete(r.claims, c)
		}
	}
	r.signal()
}

// Claim allots the next key of a prefix and binds calls of the service that carry it to the target.
func (r *Router) Claim(service, prefix string, t *Target) (key string, err error) {
	n, err := r.numbers.Next(prefix)
	if err != nil {
		return "", fmt.Errorf("claim: %w", err)
	}
	key = fmt.Sprintf("%s-%d", prefix, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[claim{service, key}] = t
	return key, nil
}

// TakeOver binds calls of the service that carry the key to the target, whoever held it.
func (r *Router) TakeOver(service, key string, t *Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[claim{service, key}] = t
	r.signal()
}

// Allotted tells whether a key was ever allotted.
func (r *Router) Allotted(key string) (bool, error) {
	prefix, number, _ := strings.Cut(key, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n == 0 || key != fmt.Sprintf("%s-%d", prefix, n) || !validPrefix.MatchString(prefix) {
		return false, nil //nolint:nilerror // nobody allots such a key
	}
	last, err := r.numbers.Last(prefix)
	return n <= last, err
}

// Release ends a claim that the target holds.
func (r *Router) Release(service, key string, t *Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims[claim{service, key}] == t {
		delete(r.claims, claim{service, key})
		r.signal()
	}
}

// find returns the target of a call of a name that carries a claim's key, or "". It waits while the calls of the name are held. The
// call counts as in flight until release. The error is of a gRPC status.
func (r *Router) find(ctx context.Context, name, key, seam string) (*Target, error) {
	var limit <-chan time.Time
	for {
		r.mu.RLock()
		to, known := r.routes[name]
		if t := r.claims[claim{name, key}]; key != "" && t != nil {
			to, known = route{target: t}, true
		}
		changed := r.changed
		if to.target != nil { // with the lock held, so that WaitIdle cannot miss it
			to.target.calls.Add(1)
		}
		r.mu.RUnlock()
		switch {
		case !known:
			return nil, status.Errorf(codes.Unavailable, "no active row provides seam %q", seam)
		case to.target != nil:
			return to.target, nil
		case !to.held:
			return nil, status.Error(codes.Unavailable, to.down)
		}
		if limit == nil {
			if !r.startHold() {
				return nil, status.Errorf(codes.Unavailable, "%d calls wait for a provider already; seam %q is being replaced", maxHeld, seam)
			}
			defer r.endHold()
			timer := time.NewTimer(holdLimit)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-changed:
		case <-limit:
			return nil, status.Errorf(codes.Unavailable, "no provider of seam %q came back within %s", seam, holdLimit)
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// release ends a call that find has counted.
func (r *Router) release(t *Target) {
	if t.calls.Add(-1) == 0 {
		r.mu.Lock()
		r.signal()
		r.mu.Unlock()
	}
}

// WaitIdle waits until no call to the target is in flight and it holds no claim. It is for a target that gets no new calls.
func (r *Router) WaitIdle(ctx context.Context, t *Target) error {
	for {
		r.mu.RLock()
		busy, changed := r.busy(t), r.changed
		r.mu.RUnlock()
		if busy == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Busy says what keeps a target: its claims and calls; "" when nothing does.
func (r *Router) Busy(t *Target) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.busy(t)
}

func (r *Router) busy(t *Target) string {
	kept := r.keys(t)
	if n := t.calls.Load(); n > 0 {
		kept = append(kept, fmt.Sprintf("%d calls", n))
	}
	return strings.Join(kept, ", ")
}

func (r *Router) startHold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == maxHeld {
		return false
	}
	r.held++
	return true
}

func (r *Router) endHold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
}

// Caller is who makes a call.
type Caller struct {
	// Row is the identity that the provider sees.
	Row string
	// Injects are the seams it may call. Nil: all.
	Injects []*pluginv1.Inject
}

// mayCall returns nil when the caller injects the service.
func (c *Caller) mayCall(service string) error {
	if c.Injects == nil {
		return nil
	}
	for _, i := range c.Injects {
		if i.GetService() == service {
			return nil
		}
	}
	return status.Errorf(codes.PermissionDenied,
		"row %q may not call %s: its manifest lacks an inject of the seam with service %q", c.Row, service, service)
}

// seam is the name that the caller's manifest gives to a service.
func (c *Caller) seam(service string) string {
	for _, i := range c.Injects {
		if i.GetService() == service {
			return i.GetSeam()
		}
	}
	return service
}

// route decides on a call: permission, then the target.
func (r *Router) route(ctx context.Context, caller *Caller, method string, md metadata.MD) (*Target, error) {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if err := caller.mayCall(service); err != nil {
		return nil, err
	}
	var key string
	if values := md.Get(api.MetadataClaim); len(values) > 0 {
		key = values[0]
	}
	return r.find(ctx, service, key, caller.seam(service))
}

// outgoing is the metadata to pass on: what the caller sent without the transport's own, and the caller's identity.
func outgoing(in metadata.MD, caller string) metadata.MD {
	out := make(metadata.MD, len(in)+1)
	for name, values := range in {
		switch {
		case strings.HasPrefix(name, ":"), strings.HasPrefix(name, "grpc-"), name == "content-type", name == "user-agent":
		case strings.HasPrefix(name, api.MetadataPrefix) && name != api.MetadataClaim:
		default:
			out[name] = values
		}
	}
	out.Set(api.MetadataCaller, caller)
	return out
}

// explain replaces the error of a broken connection by how the provider died. ctx is the caller's.
func (t *Target) explain(ctx context.Context, err error) error {
	code := status.Code(err)
	closed := code == codes.Canceled && ctx.Err() == nil // the connection was closed under the call
	if code != codes.Unavailable && !closed {
		return err
	}
	if t.stopped.Load() {
		return status.Errorf(codes.Unavailable, "row %q was stopped during the call", t.Row)
	}
	timer := time.NewTimer(reportWait)
	defer timer.Stop()
	select {
	case <-t.Exited:
		return status.Errorf(codes.Unavailable, "row %q died during the call: %s", t.Row, t.Report())
	case <-timer.C:
	case <-ctx.Done():
	}
	if closed {
		return status.Errorf(codes.Unavailable, "row %q was stopped during the call", t.Row)
	}
	return err
}
