package toolbash

import (
	"context"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

// broker delivers one event to the first subscription, and closes acked when it is acknowledged.
type broker struct {
	eventsv1.UnimplementedEventsServer
	event *eventsv1.Event
	acked chan struct{}
	once  sync.Once
}

func (b *broker) Subscribe(stream grpc.BidiStreamingServer[eventsv1.SubscribeRequest, eventsv1.SubscribeResponse]) error {
	open, err := stream.Recv()
	if err != nil {
		return err
	}
	if topics := open.GetOpen().GetTopics(); !slices.Equal(topics, []string{"bash.task.finished"}) {
		return status.Errorf(codes.InvalidArgument, "subscribed to %v", topics)
	}
	for _, answer := range []*eventsv1.SubscribeResponse{
		{Response: &eventsv1.SubscribeResponse_Opened_{Opened: &eventsv1.SubscribeResponse_Opened{}}},
		{Response: &eventsv1.SubscribeResponse_Event{Event: b.event}},
	} {
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	ack, err := stream.Recv()
	if err != nil {
		return err
	}
	if ack.GetAck() == b.event.GetOffset() {
		b.once.Do(func() { close(b.acked) })
	}
	<-stream.Context().Done()
	return nil
}

// sessions stands in for the agents: it answers injections with the errors, one after the other, then takes them.
type sessions struct {
	agentsv1.UnimplementedAgentsServer
	mu       sync.Mutex
	errors   []error
	injected []*agentsv1.InjectRequest
}

func (s *sessions) Inject(_ context.Context, req *agentsv1.InjectRequest) (*agentsv1.InjectResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.injected = append(s.injected, req)
	if len(s.errors) > 0 {
		err := s.errors[0]
		s.errors = s.errors[1:]
		return nil, err
	}
	return &agentsv1.InjectResponse{}, nil
}

// deliver gives the plugin an event and returns the injections made until it was acknowledged.
func deliver(t *testing.T, data []byte, errors ...error) []*agentsv1.InjectRequest {
	t.Helper()
	b := &broker{acked: make(chan struct{}), event: &eventsv1.Event{Offset: 7, Topic: "bash.task.finished", Key: "bash-5:finished", Data: data}}
	s := &sessions{errors: errors}
	i := plugintest.Start(t, Plugin(), plugintest.Options{Seams: func(r grpc.ServiceRegistrar) {
		eventsv1.RegisterEventsServer(r, b)
		agentsv1.RegisterAgentsServer(r, s)
	}})
	<-b.acked
	i.Stop()
	return s.injected
}

func finished(t *testing.T, f *bashv1.TaskFinished) []byte {
	t.Helper()
	data, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheOwnerOfATaskIsToldThatItHasEnded(t *testing.T) {
	for name, test := range map[string]struct {
		status *bashv1.TaskStatus
		lost   string
		want   string
	}{
		"completed": {&bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_COMPLETED, Exit: &bashv1.Exit{}}, "",
			"background bash task bash-5 finished [status: completed, exit code: 0]. Read its output with bash_output."},
		"killed by a signal": {&bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED, Exit: &bashv1.Exit{Signal: "SIGTERM"}}, "",
			"background bash task bash-5 finished [status: killed by SIGTERM]. Read its output with bash_output."},
		"never started": {&bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED}, "",
			"background bash task bash-5 finished [status: killed]. Read its output with bash_output."},
		"lost": {nil, "task bash-5 was lost: plugin bash-local crashed at 12:00:01", "task bash-5 was lost: plugin bash-local crashed at 12:00:01"},
	} {
		t.Run(name, func(t *testing.T) {
			got := deliver(t, finished(t, &bashv1.TaskFinished{TaskId: "bash-5", SessionId: "s1", Status: test.status, Lost: test.lost}))
			want := &agentsv1.InjectRequest{SessionId: "s1", Text: test.want, Source: &agentsv1.Source{Kind: "plugin", Plugin: "tool-bash"}, Key: "bash-5:finished"}
			if len(got) != 1 || !proto.Equal(got[0], want) {
				t.Errorf("injected %v, want %v", got, want)
			}
		})
	}
}

func TestANoticeIsTriedUntilItIsDealtWith(t *testing.T) {
	owned := &bashv1.TaskFinished{TaskId: "bash-5", SessionId: "s1"}
	for name, test := range map[string]struct {
		errors []error
		want   int
	}{
		"agents are away for a while": {[]error{status.Error(codes.Unavailable, "no agents"), status.Error(codes.Unavailable, "no agents")}, 3},
		"the session is unknown":      {[]error{status.Error(codes.NotFound, "unknown session: s1")}, 1},
		"the session refuses it":      {[]error{status.Error(codes.InvalidArgument, "no")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := deliver(t, finished(t, owned), test.errors...); len(got) != test.want {
				t.Errorf("tried %d times, want %d", len(got), test.want)
			}
		})
	}
}

func TestNobodyIsToldOfATaskWithoutAnOwner(t *testing.T) {
	if got := deliver(t, finished(t, &bashv1.TaskFinished{TaskId: "bash-5"})); len(got) != 0 {
		t.Errorf("injected %v", got)
	}
}

func TestAnEventThatIsNoTaskFinishedIsDropped(t *testing.T) {
	if got := deliver(t, []byte{0xff}); len(got) != 0 {
		t.Errorf("injected %v", got)
	}
}
