package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/peer"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// NewInstance returns the life-cycle service of one instance of a plugin. [Serve] serves it to the host; tests drive it
// directly. hostPID is the only process whose calls the seams take.
func NewInstance(p *Plugin, log hclog.Logger, hostPID int) pluginv1.PluginServer {
	return &instance{plugin: p, log: log, hostPID: hostPID}
}

// instance answers the host's life-cycle calls. mu is held through a whole activation or deactivation: they never overlap.
type instance struct {
	pluginv1.UnimplementedPluginServer
	plugin  *Plugin
	log     hclog.Logger
	hostPID int

	mu      sync.Mutex
	serving chan struct{} // closed when the seam server has ended

	current struct {
		sync.Mutex
		*Context
	}
}

func (i *instance) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	if i.plugin.err != nil {
		return nil, status.Error(codes.FailedPrecondition, i.plugin.err.Error())
	}
	return &pluginv1.DescribeResponse{Manifest: i.plugin.manifest}, nil
}

func (i *instance) Activate(ctx context.Context, req *pluginv1.ActivateRequest) (*pluginv1.ActivateResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.context() != nil {
		return nil, status.Error(codes.FailedPrecondition, "the instance is active already")
	}
	c, err := i.newContext(req)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	i.setContext(c)
	if err := i.start(c, req); err != nil {
		c.unwind(ctx)
		c.server.Stop()
		c.conn.Close()
		i.setContext(nil)
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pluginv1.ActivateResponse{}, nil
}

func (i *instance) newContext(req *pluginv1.ActivateRequest) (*Context, error) {
	conn, err := api.Dial(req.GetHostSocket())
	if err != nil {
		return nil, fmt.Errorf("dial the host: %w", err)
	}
	c := &Context{
		row: req.GetRow(), generation: req.GetGeneration(), restored: req.GetCheckpoint(), crash: req.GetCrash(), log: i.log,
		conn: conn, host: pluginv1.NewHostClient(conn), retired: make(chan struct{}),
		server: grpc.NewServer(append(api.ServerOptions(),
			grpc.Creds(peer.Credentials(func() int { return i.hostPID })),
			grpc.WaitForHandlers(true),
			grpc.UnaryInterceptor(i.containUnary),
			grpc.StreamInterceptor(i.containStream))...),
	}
	c.done, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// start activates the plugin and then serves its seams.
func (i *instance) start(c *Context, req *pluginv1.ActivateRequest) error {
	if err := i.callActivate(c, req.GetConfig()); err != nil {
		return err
	}
	registered := c.server.GetServiceInfo()
	for _, p := range i.plugin.manifest.GetProvides() {
		if _, ok := registered[p.GetService()]; !ok {
			return fmt.Errorf("the manifest provides seam %q, but activation registered no %s", p.GetSeam(), p.GetService())
		}
	}
	if len(registered) == 0 {
		return nil
	}
	for service := range registered {
		if !slices.ContainsFunc(i.plugin.manifest.GetProvides(), func(p *pluginv1.Provide) bool { return p.GetService() == service }) {
			return fmt.Errorf("activation registered %s, but the manifest does not provide it", service)
		}
	}
	listener, err := net.Listen("unix", req.GetSeamSocket())
	if err != nil {
		return fmt.Errorf("listen for calls: %w", err)
	}
	if err := os.Chmod(req.GetSeamSocket(), 0o600); err != nil {
		listener.Close()
		return fmt.Errorf("listen for calls: %w", err)
	}
	i.serving = make(chan struct{})
	go func() {
		defer close(i.serving)
		if err := c.server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			i.log.Error("seam server ended", "error", err)
		}
	}()
	return nil
}

func (i *instance) callActivate(c *Context, config string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			i.log.Error("activation panicked", "panic", fmt.Sprint(p), "stack", stack())
			err = fmt.Errorf("panic in Activate: %v", p)
		}
	}()
	if config == "" {
		config = "{}"
	}
	return i.plugin.activate(c, config)
}

func (i *instance) Retire(ctx context.Context, req *pluginv1.RetireRequest) (*pluginv1.RetireResponse, error) {
	if c := i.context(); c != nil {
		c.retire(ctx, req.GetReason())
	}
	return &pluginv1.RetireResponse{}, nil
}

func (i *instance) Resume(ctx context.Context, req *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
	c := i.context()
	if c == nil {
		return nil, status.Error(codes.FailedPrecondition, "the instance is not active")
	}
	if err := c.resume(ctx, req.GetCheckpoint()); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pluginv1.ResumeResponse{}, nil
}

// Deactivate ends the instance's own work, waits for calls in flight, then undoes the effects.
func (i *instance) Deactivate(ctx context.Context, _ *pluginv1.DeactivateRequest) (*pluginv1.DeactivateResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.context()
	if c == nil {
		return &pluginv1.DeactivateResponse{}, nil
	}
	i.setContext(nil)
	c.stop()
	var failed []error
	if i.serving != nil {
		drained := make(chan struct{})
		go func() {
			c.server.GracefulStop()
			close(drained)
		}()
		select {
		case <-drained:
		case <-ctx.Done():
			failed = append(failed, errors.New("calls in flight did not return in time"))
			c.server.Stop()
		}
		<-i.serving
	}
	failed = append(failed, c.unwind(ctx)...)
	if err := c.conn.Close(); err != nil {
		failed = append(failed, err)
	}
	answer := &pluginv1.DeactivateResponse{}
	for _, err := range failed {
		answer.Errors = append(answer.Errors, err.Error())
	}
	return answer, nil
}

func (i *instance) context() *Context {
	i.current.Lock()
	defer i.current.Unlock()
	return i.current.Context
}

func (i *instance) setContext(c *Context) {
	i.current.Lock()
	defer i.current.Unlock()
	i.current.Context = c
}

// containUnary and containStream turn a panic of a handler into an error of its call.
func (i *instance) containUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
	defer i.contain(info.FullMethod, &err)
	return handle(ctx, req)
}

func (i *instance) containStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer i.contain(info.FullMethod, &err)
	return handle(srv, stream)
}

func (i *instance) contain(method string, err *error) {
	if p := recover(); p != nil {
		i.log.Error("call panicked", "method", method, "panic", fmt.Sprint(p), "stack", stack())
		*err = status.Errorf(codes.Internal, "plugin %q panicked in %s: %v", i.plugin.Name(), method, p)
	}
}

func stack() string { return string(debug.Stack()) }
