package acp_test

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// fakeTools is the host's registry of tools, its events, and an executor: each of them serves what the bridge needs of it.
type fakeTools struct {
	toolsv1.UnimplementedToolsServer
	eventsv1.UnimplementedEventsServer
	changed chan struct{} // an event each

	mu    sync.Mutex
	tools []*toolsv1.Tool
	bash  *fakeBash // nil: there is no executor
}

type fakeBash struct {
	bashv1.UnimplementedBashServer
	tools *fakeTools
	tasks []*bashv1.Task
	hang  chan struct{} // told when a call of List hangs
}

func newFakeTools(names ...string) *fakeTools {
	f := &fakeTools{changed: make(chan struct{})}
	f.offer(names...)
	return f
}

// offer makes these the tools that there are.
func (f *fakeTools) offer(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tools = nil
	for _, name := range names {
		f.tools = append(f.tools, &toolsv1.Tool{Name: name, Description: "Does " + name + ".\n\nAt length."})
	}
}

func (f *fakeTools) register(s grpc.ServiceRegistrar) {
	toolsv1.RegisterToolsServer(s, f)
	eventsv1.RegisterEventsServer(s, f)
	bashv1.RegisterBashServer(s, &fakeBash{tools: f})
}

func (f *fakeTools) List(context.Context, *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &toolsv1.ListResponse{Tools: f.tools}, nil
}

func (f *fakeTools) Subscribe(stream grpc.BidiStreamingServer[eventsv1.SubscribeRequest, eventsv1.SubscribeResponse]) error {
	open, err := stream.Recv()
	if err != nil {
		return err
	}
	if topics := fmt.Sprint(open.GetOpen().GetTopics()); topics != "[tools.changed]" {
		return status.Errorf(codes.InvalidArgument, "topics %s", topics)
	}
	for offset := uint64(1); ; offset++ {
		select {
		case <-f.changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		event := &eventsv1.Event{Offset: offset, Topic: "tools.changed"}
		if err := stream.Send(&eventsv1.SubscribeResponse{Response: &eventsv1.SubscribeResponse_Event{Event: event}}); err != nil {
			return err
		}
	}
}

func (b *fakeBash) active() (*fakeBash, error) {
	b.tools.mu.Lock()
	defer b.tools.mu.Unlock()
	if b.tools.bash == nil {
		return nil, status.Error(codes.Unavailable, `no plugin provides the seam "bash"`)
	}
	return b.tools.bash, nil
}

func (b *fakeBash) List(ctx context.Context, _ *bashv1.ListRequest) (*bashv1.ListResponse, error) {
	active, err := b.active()
	if err != nil {
		return nil, err
	}
	if active.hang != nil {
		select {
		case active.hang <- struct{}{}:
		case <-ctx.Done():
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &bashv1.ListResponse{Tasks: active.tasks}, nil
}

func (b *fakeBash) Kill(_ context.Context, r *bashv1.KillRequest) (*bashv1.KillResponse, error) {
	active, err := b.active()
	if err != nil {
		return nil, err
	}
	for _, t := range active.tasks {
		switch {
		case t.GetId() != r.GetTaskId():
		case t.GetSessionId() != r.GetSessionId():
			return nil, status.Errorf(codes.PermissionDenied, "task %s belongs to another session", t.GetId())
		default:
			return &bashv1.KillResponse{AlreadyFinished: t.GetStatus().GetState() != bashv1.TaskStatus_STATE_RUNNING}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "unknown bash task %q", r.GetTaskId())
}
