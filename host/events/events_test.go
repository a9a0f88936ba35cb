package events

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves the seam; the metadata "row" says who calls.
func start(t *testing.T) (*Server, eventsv1.EventsClient) {
	t.Helper()
	s := New(hclog.NewNullLogger(), func(ctx context.Context) string {
		return metadata.ValueFromIncomingContext(ctx, "row")[0]
	})
	path := t.TempDir() + "/s"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(api.ServerOptions(), grpc.WaitForHandlers(true))...)
	eventsv1.RegisterEventsServer(server, s)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	conn, err := api.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		served.Wait()
	})
	return s, eventsv1.NewEventsClient(conn)
}

func as(t *testing.T, row string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "row", row)
}

func subscribe(t *testing.T, ctx context.Context, client eventsv1.EventsClient, topics ...string) eventsv1.Events_SubscribeClient {
	t.Helper()
	stream, err := client.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&eventsv1.SubscribeRequest{Request: &eventsv1.SubscribeRequest_Open_{Open: &eventsv1.SubscribeRequest_Open{Topics: topics}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetOpened() == nil {
		t.Fatalf("got %v, %v, want opened", got, err)
	}
	return stream
}

func publish(t *testing.T, client eventsv1.EventsClient, topic, data string) {
	t.Helper()
	if _, err := client.Publish(as(t, "publisher"), &eventsv1.PublishRequest{Topic: topic, Key: "key-" + data, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, stream eventsv1.Events_SubscribeClient, topic, data string) uint64 {
	t.Helper()
	got, err := stream.Recv()
	e := got.GetEvent()
	if err != nil || e.GetTopic() != topic || string(e.GetData()) != data || e.GetKey() != "key-"+data || e.GetPublisher() != "publisher" {
		t.Fatalf("got %v, %v, want %s of %s", got, err, data, topic)
	}
	return e.GetOffset()
}

func ack(t *testing.T, stream eventsv1.Events_SubscribeClient, offset uint64) {
	t.Helper()
	if err := stream.Send(&eventsv1.SubscribeRequest{Request: &eventsv1.SubscribeRequest_Ack{Ack: offset}}); err != nil {
		t.Fatal(err)
	}
}

func TestEventsComeInOrderToThoseWhoSubscribe(t *testing.T) {
	_, client := start(t)
	publish(t, client, "a", "before") // nobody listens: gone
	both := subscribe(t, as(t, "one"), client, "a", "b")
	only := subscribe(t, as(t, "two"), client, "b")
	publish(t, client, "a", "1")
	publish(t, client, "b", "2")
	publish(t, client, "c", "3")
	publish(t, client, "a", "4")
	expect(t, both, "a", "1")
	expect(t, both, "b", "2")
	expect(t, both, "a", "4")
	expect(t, only, "b", "2")
}

func TestEventsWaitForTheRowsNextInstance(t *testing.T) {
	_, client := start(t)
	ctx, cancel := context.WithCancel(as(t, "row"))
	first := subscribe(t, ctx, client, "a")
	publish(t, client, "a", "1")
	publish(t, client, "a", "2")
	ack(t, first, expect(t, first, "a", "1"))
	expect(t, first, "a", "2") // not acknowledged
	second := subscribe(t, as(t, "row"), client, "a")
	if _, err := first.Recv(); status.Code(err) != codes.Aborted {
		t.Fatalf("the first subscription ends with %v, want aborted", err)
	}
	cancel()
	publish(t, client, "a", "3")
	got, err := second.Recv()
	if err == nil && string(got.GetEvent().GetData()) == "1" { // its acknowledgement may have come too late: at least once
		got, err = second.Recv()
	}
	if err != nil || string(got.GetEvent().GetData()) != "2" {
		t.Fatalf("got %v, %v, want event 2 again", got, err)
	}
	expect(t, second, "a", "3")
}

func TestWhatWaitsIsBounded(t *testing.T) {
	s, client := start(t)
	ctx, cancel := context.WithCancel(as(t, "row"))
	stream := subscribe(t, ctx, client, "a")
	cancel()
	for err := error(nil); err == nil; {
		_, err = stream.Recv()
	}
	for n := range maxWaiting + 5 {
		publish(t, client, "a", fmt.Sprint(n))
	}
	s.mu.Lock()
	for _, sub := range s.subscriptions {
		if len(sub.waiting) != maxWaiting || string(sub.waiting[0].GetData()) != "5" {
			t.Errorf("%d events wait, the oldest is %s", len(sub.waiting), sub.waiting[0].GetData())
		}
	}
	s.mu.Unlock()
	s.Forget("row")
	if len(s.subscriptions) != 0 {
		t.Error("the subscription of a row that is gone is kept")
	}
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	_, client := start(t)
	for want, request := range map[string]*eventsv1.PublishRequest{
		"publish: an event needs a topic":          {},
		"publish: 65537 bytes are more than 65536": {Topic: "a", Data: make([]byte, maxData+1)},
	} {
		if _, err := client.Publish(as(t, "x"), request); status.Convert(err).Message() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	stream, err := client.Subscribe(as(t, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&eventsv1.SubscribeRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || !strings.Contains(err.Error(), "the first request must name the topics") {
		t.Errorf("got %v", err)
	}
}
