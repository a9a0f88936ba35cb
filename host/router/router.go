// Package router carries calls between plugins: who may call what, which instance answers, and what a caller hears when its
// provider is gone.
package router

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

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
}

// Router knows who serves what. Its methods may be called from any goroutine; mu guards the maps.
type Router struct {
	mu     sync.RWMutex
	routes map[string]*Target // by full name of the gRPC service
	claims map[claim]*Target
	counts map[string]int // numbers allotted, by prefix
}

type claim struct{ service, key string }

// New returns a router without routes.
func New() *Router {
	return &Router{routes: map[string]*Target{}, claims: map[claim]*Target{}, counts: map[string]int{}}
}

// Provide lets calls of the service go to the target.
func (r *Router) Provide(service string, t *Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.routes[service] = t
}

// Withdraw ends everything that goes to the target: its routes, and its claims.
func (r *Router) Withdraw(t *Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for service, target := range r.routes {
		if target == t {
			delete(r.routes, service)
		}
	}
	for c, target := range r.claims {
		if target == t {
			delete(r.claims, c)
		}
	}
}

// Claim allots the next key of a prefix and binds calls of the service that carry it to the target.
func (r *Router) Claim(service, prefix string, t *Target) (key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[prefix]++
	key = fmt.Sprintf("%s-%d", prefix, r.counts[prefix])
	r.claims[claim{service, key}] = t
	return key
}

// Release ends a claim that the target holds.
func (r *Router) Release(service, key string, t *Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims[claim{service, key}] == t {
		delete(r.claims, claim{service, key})
	}
}

// target finds who answers a call of the service that carries the claim's key, or "".
func (r *Router) target(service, key string) *Target {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if key != "" {
		if t := r.claims[claim{service, key}]; t != nil {
			return t
		}
	}
	return r.routes[service]
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
func (r *Router) route(caller *Caller, method string, md metadata.MD) (*Target, error) {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if err := caller.mayCall(service); err != nil {
		return nil, err
	}
	var key string
	if values := md.Get(api.MetadataClaim); len(values) > 0 {
		key = values[0]
	}
	t := r.target(service, key)
	if t == nil {
		return nil, status.Errorf(codes.Unavailable, "no active row provides seam %q", caller.seam(service))
	}
	return t, nil
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
	timer := time.NewTimer(reportWait)
	defer timer.Stop()
	select {
	case <-t.Exited:
		return status.Errorf(codes.Unavailable, "row %q died during the call: %s", t.Row, t.Report())
	case <-timer.C:
	case <-ctx.Done():
	}
	if closed {
		return status.Errorf(codes.Unavailable, "row %q stopped during the call", t.Row)
	}
	return err
}
