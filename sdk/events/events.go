// Package events is the seam of topics: publish, and subscribe for as long as an instance lives.
//
// # What is ordered, what is certain
//
// The events of a topic arrive in the order they were published, at least once: an event counts as dealt with when its handler
// returned nil, and until then it waits with the host, bounded, also while the subscriber is being replaced. Across a reload or
// a broken connection an event may therefore come twice; what must happen once goes by [Event].Key.
package events

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
)

// Seam is what a plugin injects.
var Seam = sdk.Seam{Name: "events", Service: eventsv1.Events_ServiceDesc.ServiceName}

// Event is one event of a topic.
type Event = eventsv1.Event

// Publish hands an event to every row that is subscribed to the topic, and returns when it is in their queues. key tells a
// subscriber that this event is a repetition; empty: none. data is at most 64 KiB.
func Publish(ctx context.Context, conn grpc.ClientConnInterface, topic, key string, data []byte) error {
	_, err := eventsv1.NewEventsClient(conn).Publish(ctx, &eventsv1.PublishRequest{Topic: topic, Key: key, Data: data})
	return err
}

// Waits between attempts: to subscribe, and to handle an event.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 15 * time.Second
	// retiredWait keeps a retired instance from taking the events back from its successor; if there is none after all, it goes on.
	retiredWait = 2 * time.Second
)

// Subscribe calls handle with each event of the topics, one after the other, from one goroutine, until the instance is
// deactivated. An event whose handling fails is handled again, with growing pauses, before the next one: handle returns nil for
// what can never succeed. While nobody serves the seam, Subscribe keeps trying.
func Subscribe(c *sdk.Context, handle func(context.Context, *Event) error, topics ...string) {
	s := &subscriber{c: c, handle: handle, topics: topics}
	c.Go("events", s.run)
}

// Watch is for those who keep something that events say has changed. It calls changed, from one goroutine, whenever what is kept may be
// out of date: with each event, and when the watch begins and ends. Only while the last call said watching may something be kept:
// otherwise no event tells of a change.
func Watch(c *sdk.Context, changed func(watching bool), topics ...string) {
	s := &subscriber{c: c, topics: topics, opened: changed, handle: func(context.Context, *Event) error {
		changed(true)
		return nil
	}}
	c.Go("events", s.run)
}

// subscriber is owned by the goroutine that runs it.
type subscriber struct {
	c      *sdk.Context
	handle func(context.Context, *Event) error
	opened func(bool) // told when a subscription begins and ends; may be nil
	topics []string
}

func (s *subscriber) tell(open bool) {
	if s.opened != nil {
		s.opened(open)
	}
}

func (s *subscriber) run(ctx context.Context) error {
	for wait := firstWait; ; wait = longer(wait) {
		opened, err := s.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case status.Code(err) == codes.PermissionDenied, status.Code(err) == codes.InvalidArgument:
			return err
		case opened:
			wait = firstWait
		}
		s.c.Log().Debug("subscription ended", "topics", s.topics, "error", err)
		select {
		case <-s.c.Retired():
			wait = max(wait, retiredWait)
		default:
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// follow handles the events of one subscription until it ends.
func (s *subscriber) follow(ctx context.Context) (opened bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := eventsv1.NewEventsClient(s.c.Conn()).Subscribe(ctx)
	if err != nil {
		return false, err
	}
	open := &eventsv1.SubscribeRequest_Open_{Open: &eventsv1.SubscribeRequest_Open{Topics: s.topics}}
	// An error of Send is io.EOF; Recv has the real one.
	_ = stream.Send(&eventsv1.SubscribeRequest{Request: open})
	for {
		answer, err := stream.Recv()
		if err != nil {
			return opened, err
		}
		if !opened {
			opened = true
			s.tell(true)
			defer s.tell(false)
		}
		event := answer.GetEvent()
		if event == nil {
			continue
		}
		if !s.deal(ctx, event) {
			return opened, ctx.Err()
		}
		_ = stream.Send(&eventsv1.SubscribeRequest{Request: &eventsv1.SubscribeRequest_Ack{Ack: event.GetOffset()}})
	}
}

// deal handles an event until it has been dealt with. It gives up when the instance is deactivated: the event goes to the next.
func (s *subscriber) deal(ctx context.Context, event *Event) bool {
	for wait := firstWait; ; wait = longer(wait) {
		err := s.handle(ctx, event)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.c.Log().Debug("event not dealt with yet", "topic", event.GetTopic(), "key", event.GetKey(), "error", err)
		if !sleep(ctx, wait) {
			return false
		}
	}
}

func longer(wait time.Duration) time.Duration { return min(2*wait, lastWait) }

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
