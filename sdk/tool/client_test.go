package tool

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// registry stands in for the host's registry.
type registry struct {
	toolsv1.UnimplementedToolsServer
	execute func(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error
}

func (r registry) List(context.Context, *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	return &toolsv1.ListResponse{Tools: []*toolsv1.Tool{{Name: "a"}, {Name: "b"}}}, nil
}

func (r registry) Execute(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return r.execute(stream)
}

// connect serves the registry in memory, so that it lives in a synctest bubble.
func connect(t *testing.T, r registry) *Client {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	toolsv1.RegisterToolsServer(server, r)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-serving
	})
	return NewClient(conn)
}

func result(text string) *toolsv1.ExecuteResponse {
	return &toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: &toolsv1.Result{Content: content(text)}}}
}

func TestClientListsInOrder(t *testing.T) {
	tools, _, err := connect(t, registry{}).List(t.Context())
	if err != nil || len(tools) != 2 || tools[0].GetName() != "a" || tools[1].GetName() != "b" {
		t.Errorf("got %v, %v", tools, err)
	}
}

func TestClientTellsWhatHappensInOrder(t *testing.T) {
	client := connect(t, registry{execute: func(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
		for _, event := range []*toolsv1.ExecuteResponse{
			{Event: &toolsv1.ExecuteResponse_Presentation{Presentation: &toolsv1.Presentation{Title: "T"}}},
			{Event: &toolsv1.ExecuteResponse_Started_{Started: &toolsv1.ExecuteResponse_Started{}}},
			{Event: &toolsv1.ExecuteResponse_Output_{Output: &toolsv1.ExecuteResponse_Output{Data: "o1"}}},
			{Event: &toolsv1.ExecuteResponse_Output_{Output: &toolsv1.ExecuteResponse_Output{Data: "o2"}}},
			result("done"),
		} {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		return nil
	}})
	var seen []string
	note := func(s string) { seen = append(seen, s) }
	r, err := client.Execute(t.Context(), &toolsv1.Call{Name: "x"}, Watch{
		Presented: func(p *toolsv1.Presentation) { note(p.GetTitle()) },
		Started:   func() { note("started") },
		Output:    note,
	})
	if got := strings.Join(seen, " "); err != nil || got != "T started o1 o2" || r.GetContent()[0].GetText() != "done" {
		t.Errorf("saw %q, then %v, %v", got, r, err)
	}
	if _, err := client.Execute(t.Context(), &toolsv1.Call{Name: "x"}, Watch{}); err != nil {
		t.Errorf("without a watcher: %v", err)
	}
}

func TestClientSendsCancelAndWaitsForTheResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := connect(t, registry{execute: func(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
		cancel()
		req, err := stream.Recv()
		if err != nil || req.GetCancel() == nil {
			return status.Errorf(codes.Internal, "got %v, %v instead of a cancel", req, err)
		}
		return stream.Send(result("stopped"))
	}})
	r, err := client.Execute(ctx, &toolsv1.Call{Name: "x"}, Watch{})
	if err != nil || r.GetContent()[0].GetText() != "stopped" {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestClientGivesUpOnAToolThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := connect(t, registry{execute: func(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
			cancel()
			<-stream.Context().Done()
			return nil
		}})
		_, err := client.Execute(ctx, &toolsv1.Call{Name: "x"}, Watch{})
		if want := `tool "x" did not stop within 10s of being cancelled`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

func TestClientDoesNotBeginWhatIsCancelled(t *testing.T) {
	why := errors.New("the turn was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	client := connect(t, registry{execute: func(grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
		t.Error("the tool was called")
		return nil
	}})
	if _, err := client.Execute(ctx, &toolsv1.Call{Name: "x"}, Watch{}); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestClientReportsACallThatBreaks(t *testing.T) {
	for name, test := range map[string]struct {
		end  error
		want string
	}{
		"with an error":    {status.Error(codes.Unavailable, "the provider crashed"), "the provider crashed"},
		"without a result": {nil, "the call ended without a result"},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t, registry{execute: func(grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error { return test.end }})
			_, err := client.Execute(t.Context(), &toolsv1.Call{Name: "x"}, Watch{})
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, io.EOF) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
