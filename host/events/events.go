// Package events serves topics whose subscribers may be replaced meanwhile: the seam "events".
package events

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsh-go/dsh/sdk/api/eventsv1"
)

const (
	// maxData limits an event, in bytes.
	maxData = 64 << 10
	// maxWaiting limits the events that wait for one subscriber. When more come the oldest is lost, and the log says so.
	maxWaiting = 10_000
)

// Server keeps the subscriptions. mu guards them and all that is in them.
type Server struct {
	eventsv1.UnimplementedEventsServer
	log    hclog.Logger
	caller func(context.Context) string
	own    map[string]func(ctx context.Context, row string) error

	mu            sync.Mutex
	subscriptions map[string]*subscription
}

// subscription belongs to a row and outlives its instances.
type subscription struct {
	row     string
	topics  []string
	offset  uint64
	waiting []*eventsv1.Event // not acknowledged, oldest first
	changed chan struct{}     // closed and replaced when events come
	replace chan struct{}     // closed when another stream takes over
}

// New returns a server without subscriptions. caller tells the row that makes a call.
func New(log hclog.Logger, caller func(context.Context) string) *Server {
	return &Server{log: log, caller: caller, subscriptions: map[string]*subscription{}, own: map[string]func(context.Context, string) error{}}
}

// Take lets what rows publish on a topic come to a function instead of the subscribers, who have it from the host. To be called before
// the server serves.
func (s *Server) Take(topic string, f func(ctx context.Context, row string) error) { s.own[topic] = f }

// Forget ends the subscriptions of a row that is gone for good.
func (s *Server) Forget(row string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, sub := range s.subscriptions {
		if sub.row == row {
			close(sub.replace)
			delete(s.subscriptions, key)
		}
	}
}

// Announce publishes an event of the host itself.
func (s *Server) Announce(topic, key string, data []byte) {
	s.publish(&eventsv1.PublishRequest{Topic: topic, Key: key, Data: data}, "host")
}

// Publish implements eventsv1.EventsServer.
func (s *Server) Publish(ctx context.Context, req *eventsv1.PublishRequest) (*eventsv1.PublishResponse, error) {
	if req.GetTopic() == "" {
		return nil, status.Error(codes.InvalidArgument, "publish: an event needs a topic")
	}
	if len(req.GetData()) > maxData {
		return nil, status.Errorf(codes.InvalidArgument, "publish: %d bytes are more than %d", len(req.GetData()), maxData)
	}
	if take := s.own[req.GetTopic()]; take != nil {
		if err := take(ctx, s.caller(ctx)); err != nil {
			return nil, err
		}
		return &eventsv1.PublishResponse{}, nil
	}
	s.publish(req, s.caller(ctx))
	return &eventsv1.PublishResponse{}, nil
}

func (s *Server) publish(req *eventsv1.PublishRequest, publisher string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscriptions {
		if !slices.Contains(sub.topics, req.GetTopic()) {
			continue
		}
		sub.offset++
		sub.waiting = append(sub.waiting, &eventsv1.Event{
			Offset: sub.offset, Topic: req.GetTopic(), Key: req.GetKey(), Data: req.GetData(),
			Publisher: publisher, Time: timestamppb.Now(),
		})
		if len(sub.waiting) > maxWaiting {
			s.log.Error("an event was lost: its subscriber does not take events", "row", sub.row, "topic", sub.waiting[0].GetTopic())
			sub.waiting = sub.waiting[1:]
		}
		close(sub.changed)
		sub.changed = make(chan struct{})
	}
}

// Subscribe implements eventsv1.EventsServer.
func (s *Server) Subscribe(stream grpc.BidiStreamingServer[eventsv1.SubscribeRequest, eventsv1.SubscribeResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if len(first.GetOpen().GetTopics()) == 0 {
		return status.Error(codes.InvalidArgument, "subscribe: the first request must name the topics")
	}
	sub, replaced := s.attach(s.caller(stream.Context()), first.GetOpen().GetTopics())
	err = stream.Send(&eventsv1.SubscribeResponse{Response: &eventsv1.SubscribeResponse_Opened_{Opened: &eventsv1.SubscribeResponse_Opened{}}})
	if err != nil {
		return err
	}
	acks := make(chan error, 1)
	// It ends when this handler returns, at the latest: the stream is over then.
	go func() { acks <- s.acknowledge(stream, sub) }()
	for last := uint64(0); ; {
		event, changed := s.next(sub, last)
		if event != nil {
			last = event.GetOffset()
			if err := stream.Send(&eventsv1.SubscribeResponse{Response: &eventsv1.SubscribeResponse_Event{Event: event}}); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-replaced:
			return status.Error(codes.Aborted, "subscribe: another subscription of the row has taken over")
		case err := <-acks:
			return err
		}
	}
}

// attach finds or makes the subscription of a row to topics and takes it over.
func (s *Server) attach(row string, topics []string) (sub *subscription, replaced <-chan struct{}) {
	topics = slices.Sorted(slices.Values(topics))
	key := row + "\x00" + strings.Join(topics, "\x00")
	s.mu.Lock()
	defer s.mu.Unlock()
	sub = s.subscriptions[key]
	if sub == nil {
		sub = &subscription{row: row, topics: topics, changed: make(chan struct{})}
		s.subscriptions[key] = sub
	} else {
		close(sub.replace)
	}
	sub.replace = make(chan struct{})
	return sub, sub.replace
}

// next returns the first waiting event above an offset; nil: there is none until changed.
func (s *Server) next(sub *subscription, offset uint64) (*eventsv1.Event, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range sub.waiting {
		if event.GetOffset() > offset {
			return event, nil
		}
	}
	return nil, sub.changed
}

// acknowledge drops what the subscriber has dealt with, until the stream ends.
func (s *Server) acknowledge(stream grpc.BidiStreamingServer[eventsv1.SubscribeRequest, eventsv1.SubscribeResponse], sub *subscription) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		sub.waiting = slices.DeleteFunc(sub.waiting, func(e *eventsv1.Event) bool { return e.GetOffset() <= request.GetAck() })
		s.mu.Unlock()
	}
}
