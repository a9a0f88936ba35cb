// Package bash is the bash seam as its consumers see it: a client that runs shell commands and reads and ends background tasks,
// whichever executor serves them.
//
// # Cancelling
//
// Cancelling the context of [Client.Run] ends the command, and Run still waits for its result, so that what the command printed
// is not lost; after [CancelLimit] without one it gives up and breaks the call.
//
// # Tasks
//
// A task lives in the executor that started it, also when another one has become active: [Client.Read] and [Client.Kill] carry the
// task's id as their claim. When a task has ended, its executor publishes a [bashv1.TaskFinished] on [TopicTaskFinished] with the
// key [FinishedKey].
package bash

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// Seam is the bash seam.
var Seam = sdk.Seam{Name: "bash", Service: bashv1.Bash_ServiceDesc.ServiceName}

// TopicTaskFinished is the topic of the event that a background task has ended. Its data is a bashv1.TaskFinished.
const TopicTaskFinished = "bash.task.finished"

// TaskPrefix is the prefix of a task's id: the claim that Start makes.
const TaskPrefix = "bash"

// CancelLimit is how long Run waits for the result of a command that it has cancelled.
const CancelLimit = 10 * time.Second

// FinishedKey is the key of the event that the task has ended: whoever deals with it once can tell a repetition by it.
func FinishedKey(taskID string) string { return taskID + ":finished" }

// Client calls the active executor.
type Client struct {
	rpc bashv1.BashClient
}

// NewClient returns a client on the connection to the host.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{rpc: bashv1.NewBashClient(conn)}
}

// Defaults returns the limits that hold when a request names none.
func (c *Client) Defaults(ctx context.Context) (*bashv1.DefaultsResponse, error) {
	return c.rpc.Defaults(ctx, &bashv1.DefaultsRequest{})
}

// Run executes a command and returns how it ended. It hands what the command prints to output while it runs, unless that is
// nil; output is called from one goroutine and not after Run has returned, and may keep the bytes.
func (c *Client) Run(ctx context.Context, run *bashv1.RunRequest_Run, output func([]byte)) (*bashv1.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	streamCtx, breakOff := context.WithCancel(context.WithoutCancel(ctx))
	defer breakOff()
	stream, err := c.rpc.Run(streamCtx)
	if err != nil {
		return nil, err
	}
	// An error of Send is io.EOF; Recv has the reason.
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: run}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	ended := make(chan struct{})
	var canceller sync.WaitGroup
	canceller.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		_ = stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Cancel_{Cancel: &bashv1.RunRequest_Cancel{}}})
		limit := time.NewTimer(CancelLimit)
		defer limit.Stop()
		select {
		case <-ended:
		case <-limit.C:
			breakOff()
		}
	})
	defer canceller.Wait()
	defer close(ended)
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, status.Error(codes.Internal, "the executor ended the call without a result")
		}
		if err != nil {
			return nil, err
		}
		if result := response.GetResult(); result != nil {
			return result, nil
		}
		if data := response.GetOutput().GetData(); output != nil && len(data) > 0 {
			output(data)
		}
	}
}

// Start executes a command in the background and returns its task's id.
func (c *Client) Start(ctx context.Context, command *bashv1.Command) (string, error) {
	answer, err := c.rpc.Start(ctx, &bashv1.StartRequest{Command: command})
	return answer.GetTaskId(), err
}

// Read returns what the task printed since the previous read. sessionID is the session that asks; empty: none.
func (c *Client) Read(ctx context.Context, taskID, sessionID string) (*bashv1.ReadResponse, error) {
	return c.rpc.Read(sdk.WithClaim(ctx, taskID), &bashv1.ReadRequest{TaskId: taskID, SessionId: sessionID})
}

// Kill ends the task, everything it started included, and reports whether it was over before.
func (c *Client) Kill(ctx context.Context, taskID, sessionID string) (alreadyFinished bool, err error) {
	answer, err := c.rpc.Kill(sdk.WithClaim(ctx, taskID), &bashv1.KillRequest{TaskId: taskID, SessionId: sessionID})
	return answer.GetAlreadyFinished(), err
}

// List returns the tasks of the active executor, oldest first.
func (c *Client) List(ctx context.Context) ([]*bashv1.Task, error) {
	answer, err := c.rpc.List(ctx, &bashv1.ListRequest{})
	return answer.GetTasks(), err
}
