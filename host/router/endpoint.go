package router

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/peer"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// Endpoint is where one instance reaches the host: a socket of its own. The socket is the caller's identity.
type Endpoint struct {
	server *grpc.Server
	served chan struct{}
}

// Listen opens the endpoint of an instance at a socket path. Only the process with the pid may connect; 0: every process of this user.
// register adds the seams that the host itself serves.
func (r *Router) Listen(path string, pid int, caller *Caller, register func(grpc.ServiceRegistrar)) (*Endpoint, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for row %q: %w", caller.Row, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("listen for row %q: %w", caller.Row, err)
	}
	mayConnect := peer.Credentials(func() int { return pid })
	if pid == 0 {
		mayConnect = peer.UserCredentials()
	}
	e := &Endpoint{served: make(chan struct{})}
	e.server = grpc.NewServer(append(api.ServerOptions(),
		grpc.Creds(mayConnect),
		grpc.ForceServerCodecV2(newPassThrough()),
		grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(in)
			md, _ := metadata.FromIncomingContext(in.Context())
			t, err := r.route(in.Context(), caller, method, md)
			if err != nil {
				return err
			}
			defer r.release(t)
			return forward(in, method, t, outgoing(md, caller.Row))
		}),
		grpc.ChainUnaryInterceptor(caller.checkUnary),
		grpc.ChainStreamInterceptor(caller.checkStream))...)
	register(e.server)
	go func() {
		defer close(e.served)
		_ = e.server.Serve(listener)
	}()
	return e, nil
}

// Close ends the endpoint and all calls on it.
func (e *Endpoint) Close() {
	e.server.Stop()
	<-e.served
}

type callerKey struct{}

// CallerRow is the row that calls a seam which the host itself serves.
func CallerRow(ctx context.Context) string {
	if c, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return c.Row
	}
	return ""
}

// own is the prefix of the methods that need no injection.
var own = "/" + pluginv1.Host_ServiceDesc.ServiceName + "/"

// checkUnary guards the seams that the host itself serves.
func (c *Caller) checkUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := c.checkOwn(info.FullMethod); err != nil {
		return nil, err
	}
	return handle(context.WithValue(ctx, callerKey{}, c), req)
}

// checkStream does the same for streams. Forwarded calls pass here too; route has the word on them.
func (c *Caller) checkStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if srv == nil {
		return handle(srv, stream)
	}
	if err := c.checkOwn(info.FullMethod); err != nil {
		return err
	}
	return handle(srv, identified{stream, context.WithValue(stream.Context(), callerKey{}, c)})
}

func (c *Caller) checkOwn(method string) error {
	if strings.HasPrefix(method, own) {
		return nil
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return c.mayCall(service)
}

type identified struct {
	grpc.ServerStream
	ctx context.Context
}

func (i identified) Context() context.Context { return i.ctx }
