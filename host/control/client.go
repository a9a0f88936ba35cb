package control

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

// Client looks at a host and steers it. Its errors are what the host says.
type Client struct{ rpc controlv1.ControlClient }

// NewClient returns a client on the connection to a control socket.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{controlv1.NewControlClient(conn)}
}

// Status is what there is to see of a host.
type Status struct {
	Host Info  `json:"host"`
	Rows []Row `json:"rows"`
}

// Status tells of the host and all its rows.
func (c *Client) Status(ctx context.Context) (Status, error) {
	answer, err := c.rpc.Status(ctx, &controlv1.StatusRequest{})
	if err != nil {
		return Status{}, plain(err)
	}
	s := Status{Host: decodeInfo(answer.GetHost())}
	for _, row := range answer.GetRows() {
		s.Rows = append(s.Rows, decodeRow(row))
	}
	return s, nil
}

// Reload replaces the instance of a row.
func (c *Client) Reload(ctx context.Context, row string) (Reload, error) {
	answer, err := c.rpc.Reload(ctx, &controlv1.ReloadRequest{Row: row})
	if err != nil {
		return Reload{}, plain(err)
	}
	return Reload{row, int(answer.GetGeneration()), answer.GetStarted().AsDuration(), answer.GetHeld().AsDuration()}, nil
}

// ReloadConfig makes the host read its configuration again.
func (c *Client) ReloadConfig(ctx context.Context) (Change, error) {
	answer, err := c.rpc.ReloadConfig(ctx, &controlv1.ReloadConfigRequest{})
	if err != nil {
		return Change{}, plain(err)
	}
	all := func(ids []string) []string { return append([]string{}, ids...) } // not null in JSON
	return Change{all(answer.GetAdded()), all(answer.GetChanged()), all(answer.GetRemoved())}, nil
}

// Logs hands on what the host and its plugins log, until there is no more or, when the request is to follow, the context or the host ends.
func (c *Client) Logs(ctx context.Context, req *controlv1.LogsRequest, each func(*controlv1.LogsResponse) error) error {
	stream, err := c.rpc.Logs(ctx, req)
	if err != nil {
		return plain(err)
	}
	for {
		answer, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil, req.GetFollow() && status.Code(err) == codes.Unavailable:
			return nil
		case err != nil:
			return plain(err)
		}
		if err := each(answer); err != nil {
			return err
		}
	}
}

// Stop ends the host in order and waits until it is gone.
func (c *Client) Stop(ctx context.Context) error {
	_, err := c.rpc.Stop(ctx, &controlv1.StopRequest{})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, status.Code(err) == codes.Unavailable, status.Code(err) == codes.Canceled: // the connection is closed: it is gone
		return nil
	default:
		return plain(err)
	}
}

// plain is the error of a call without what gRPC says about it.
func plain(err error) error { return errors.New(status.Convert(err).Message()) }
