package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/events"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type subscription = grpc.BidiStreamingServer[eventsv1.SubscribeRequest, eventsv1.SubscribeResponse]

// broker stands in for the host: each subscription is one call of the next script, the last one again and again.
type broker struct {
	eventsv1.UnimplementedEventsServer
	mu        sync.Mutex
	scripts   []func(subscription) error
	published []*eventsv1.PublishRequest
}

func (b *broker) Subscribe(stream subscription) error {
	b.mu.Lock()
	script := b.scripts[0]
	if len(b.scripts) > 1 {
		b.scripts = b.scripts[1:]
	}
	b.mu.Unlock()
	return script(stream)
}

func (b *broker) Publish(_ context.Context, req *eventsv1.PublishRequest) (*eventsv1.PublishResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published = append(b.published, req)
	return &eventsv1.PublishResponse{}, nil
}

// deliver opens a subscription, sends the events with these offsets, and waits for the acknowledgement of the last one.
func deliver(stream subscription, offsets ...uint64) error {
	open, err := stream.Recv()
	if err != nil {
		return err
	}
	if topics := open.GetOpen().GetTopics(); !slices.Equal(topics, []string{"a", "b"}) {
		return status.Errorf(codes.InvalidArgument, "opened with %v", topics)
	}
	if err := stream.Send(&eventsv1.SubscribeResponse{Response: &eventsv1.SubscribeResponse_Opened_{Opened: &eventsv1.SubscribeResponse_Opened{}}}); err != nil {
		return err
	}
	for _, offset := range offsets {
		event := &eventsv1.Event{Offset: offset, Topic: "a", Key: fmt.Sprint("k", offset)}
		if err := stream.Send(&eventsv1.SubscribeResponse{Response: &eventsv1.SubscribeResponse_Event{Event: event}}); err != nil {
			return err
		}
	}
	for _, offset := range offsets {
		ack, err := stream.Recv()
		if err != nil {
			return err
		}
		if ack.GetAck() != offset {
			return status.Errorf(codes.InvalidArgument, "acknowledged %v instead of %d", ack, offset)
		}
	}
	return nil
}

// idle keeps a subscription open without events.
func idle(stream subscription) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// subscribe runs a plugin that subscribes.
func subscribe(t *testing.T, b *broker, handle func(context.Context, *events.Event) error) *plugintest.Instance {
	t.Helper()
	p := sdk.Define(sdk.Manifest{Name: "test", Injects: []sdk.Injection{events.Seam.Optional()}}, sdk.NoConfig{},
		func(c *sdk.Context, _ sdk.NoConfig) error {
			events.Subscribe(c, handle, "a", "b")
			return nil
		})
	return plugintest.Start(t, p, plugintest.Options{Seams: func(r grpc.ServiceRegistrar) { eventsv1.RegisterEventsServer(r, b) }})
}

func TestEventsComeInOrderAndAreAcknowledged(t *testing.T) {
	done := make(chan error, 1)
	var got []string
	b := &broker{scripts: []func(subscription) error{
		func(s subscription) error { err := deliver(s, 1, 2, 5); done <- err; return err },
		idle,
	}}
	i := subscribe(t, b, func(_ context.Context, e *events.Event) error {
		got = append(got, e.GetKey())
		return nil
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
	i.Stop()
	if !slices.Equal(got, []string{"k1", "k2", "k5"}) {
		t.Errorf("got %v", got)
	}
}

func TestAnEventThatIsNotDealtWithComesAgainBeforeTheNext(t *testing.T) {
	done := make(chan error, 1)
	var got []string
	b := &broker{scripts: []func(subscription) error{
		func(s subscription) error { err := deliver(s, 1, 2); done <- err; return err },
		idle,
	}}
	i := subscribe(t, b, func(_ context.Context, e *events.Event) error {
		got = append(got, e.GetKey())
		if len(got) < 3 {
			return errors.New("not now")
		}
		return nil
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
	i.Stop()
	if !slices.Equal(got, []string{"k1", "k1", "k1", "k2"}) {
		t.Errorf("got %v", got)
	}
}

func TestABrokenSubscriptionIsOpenedAgain(t *testing.T) {
	done := make(chan error, 1)
	b := &broker{scripts: []func(subscription) error{
		func(subscription) error { return status.Error(codes.Unavailable, "nobody serves the seam") },
		func(s subscription) error { return deliver(s, 1) },
		func(s subscription) error { err := deliver(s, 2); done <- err; return err },
		idle,
	}}
	subscribe(t, b, func(context.Context, *events.Event) error { return nil })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAWatchSaysWhenItMayHaveMissedSomething(t *testing.T) {
	b := &broker{scripts: []func(subscription) error{
		func(s subscription) error { return deliver(s, 1, 2) },
		func(subscription) error { return status.Error(codes.Unavailable, "nobody serves the seam") },
		func(s subscription) error {
			if err := deliver(s); err != nil {
				return err
			}
			return idle(s)
		},
	}}
	heard := make(chan bool, 16)
	p := sdk.Define(sdk.Manifest{Name: "test", Injects: []sdk.Injection{events.Seam.Optional()}}, sdk.NoConfig{},
		func(c *sdk.Context, _ sdk.NoConfig) error {
			events.Watch(c, func(watching bool) { heard <- watching }, "a", "b")
			return nil
		})
	i := plugintest.Start(t, p, plugintest.Options{Seams: func(r grpc.ServiceRegistrar) { eventsv1.RegisterEventsServer(r, b) }})
	for n, want := range []bool{true, true, true, false, true} { // opened, two events, broken, opened again
		if got := <-heard; got != want {
			t.Fatalf("the call number %d said %v", n+1, got)
		}
	}
	i.Stop()
	if got := <-heard; got {
		t.Error("it still watches after its end")
	}
}

func TestARefusedSubscriptionIsNotTriedAgain(t *testing.T) {
	refused := make(chan struct{}, 2)
	b := &broker{scripts: []func(subscription) error{
		func(subscription) error {
			refused <- struct{}{}
			return status.Error(codes.PermissionDenied, "not injected")
		},
		func(subscription) error { t.Error("subscribed again"); return nil },
	}}
	i := subscribe(t, b, nil)
	<-refused
	i.Stop()
}

func TestDeactivationEndsASubscriptionInTheMiddleOfAnEvent(t *testing.T) {
	handling := make(chan struct{})
	b := &broker{scripts: []func(subscription) error{func(s subscription) error { return deliver(s, 1) }}}
	i := subscribe(t, b, func(ctx context.Context, _ *events.Event) error {
		close(handling)
		<-ctx.Done()
		return ctx.Err()
	})
	<-handling
	i.Stop() // fails the test when the goroutine stays
}

func TestARetiredInstanceThatIsKeptSubscribesAgain(t *testing.T) {
	opened, retired, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b := &broker{scripts: []func(subscription) error{
		func(subscription) error { close(opened); <-retired; return nil },
		func(s subscription) error { err := deliver(s, 1); done <- err; return err },
		idle,
	}}
	i := subscribe(t, b, func(context.Context, *events.Event) error { return nil })
	<-opened
	i.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	close(retired)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPublish(t *testing.T) {
	b := &broker{}
	p := sdk.Define(sdk.Manifest{Name: "test"}, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
		return events.Publish(c.Done(), c.Conn(), "topic", "key", []byte{0xff})
	})
	plugintest.Start(t, p, plugintest.Options{Seams: func(r grpc.ServiceRegistrar) { eventsv1.RegisterEventsServer(r, b) }})
	if len(b.published) != 1 || b.published[0].GetTopic() != "topic" || b.published[0].GetKey() != "key" || string(b.published[0].GetData()) != "\xff" {
		t.Errorf("published %v", b.published)
	}
}
