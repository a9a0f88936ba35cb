package host_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/events"
)

// growing is a provider whose tool "grow" adds another one.
type growing struct {
	toolsv1.UnimplementedToolProviderServer
	c     *sdk.Context
	mu    sync.Mutex
	extra []*toolsv1.Tool
}

func growingPlugin() *sdk.Plugin {
	m := sdk.Manifest{Name: "growing", Provides: []sdk.Seam{provider}, Injects: []sdk.Injection{events.Seam.Required()}}
	return sdk.Define(m, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
		toolsv1.RegisterToolProviderServer(c, &growing{c: c})
		return nil
	})
}

func (g *growing) List(context.Context, *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &toolsv1.ListResponse{Tools: append([]*toolsv1.Tool{{Name: "grow"}}, g.extra...)}, nil
}

func (g *growing) Execute(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	g.mu.Lock()
	g.extra = append(g.extra, &toolsv1.Tool{Name: fmt.Sprintf("grown-%d", len(g.extra)+1)})
	g.mu.Unlock()
	if err := events.Publish(stream.Context(), g.c.Conn(), api.TopicToolsChanged, "", nil); err != nil {
		return err
	}
	return stream.Send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: &toolsv1.Result{}}})
}

func TestAProviderChangesItsTools(t *testing.T) {
	_, conn, _ := run(t, `
plugins:
  - {id: grow, plugin: growing}
  - {id: bash, plugin: bash}
  - {id: relay, plugin: relay}
`)
	told, err := eventsv1.NewEventsClient(conn).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	open := &eventsv1.SubscribeRequest{Request: &eventsv1.SubscribeRequest_Open_{Open: &eventsv1.SubscribeRequest_Open{Topics: []string{api.TopicToolsChanged}}}}
	if err := told.Send(open); err != nil {
		t.Fatal(err)
	}
	if _, err := told.Recv(); err != nil {
		t.Fatal(err)
	}
	want := []string{"grow", "whoami", "run"}
	for n := 1; n <= 2; n++ {
		if result := callTool(t, conn, "grow", "{}"); result.GetIsError() {
			t.Fatal(result)
		}
		want = slices.Insert(want, n, fmt.Sprintf("grown-%d", n))
		list, err := toolsv1.NewToolsClient(conn).List(t.Context(), &toolsv1.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range list.GetTools() {
			got = append(got, tool.GetName())
		}
		if !slices.Equal(got, want) {
			t.Errorf("the tools are %v, want %v", got, want)
		}
		event, err := told.Recv()
		if err != nil || event.GetEvent().GetPublisher() != "host" {
			t.Errorf("told %v, %v", event, err)
		}
	}
	result := callTool(t, conn, "grown-2", "{}")
	if result.GetIsError() {
		t.Error(result)
	}
}
