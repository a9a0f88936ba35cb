package router

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dsh-go/dsh/sdk/api"
)

// Conn is a connection to whatever instance of a row serves a contribution, for the host's own calls. It outlives the instances: calls
// are held while one is replaced.
func (r *Router) Conn(service, row string) grpc.ClientConnInterface {
	return &conn{router: r, name: Contribution(service, row), row: row}
}

// host is the caller row of the host's own calls.
const host = "host"

type conn struct {
	router *Router
	name   string
	row    string
}

func (c *conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	t, err := c.router.find(ctx, c.name, "", c.row)
	if err != nil {
		return err
	}
	defer c.router.release(t)
	if err := t.Conn.Invoke(stamped(ctx), method, args, reply, opts...); err != nil {
		return t.explain(ctx, err)
	}
	return nil
}

func (c *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	t, err := c.router.find(ctx, c.name, "", c.row)
	if err != nil {
		return nil, err
	}
	stream, err := t.Conn.NewStream(stamped(ctx), desc, method, opts...)
	if err != nil {
		c.router.release(t)
		return nil, t.explain(ctx, err)
	}
	release := sync.OnceFunc(func() { c.router.release(t) })
	context.AfterFunc(ctx, release) // a stream that is not read to its end is over when its context is
	return explained{stream, t, ctx, release}, nil
}

func stamped(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, api.MetadataCaller, host)
}

// explained tells how the provider died when the stream breaks.
type explained struct {
	grpc.ClientStream
	target  *Target
	caller  context.Context
	release func()
}

func (e explained) RecvMsg(m any) error {
	err := e.ClientStream.RecvMsg(m)
	if err != nil {
		e.release()
		return e.target.explain(e.caller, err)
	}
	return nil
}
