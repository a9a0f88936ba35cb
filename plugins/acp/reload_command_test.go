package acp_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

// fakeControl stands in for the host's control: it reloads the row "bash" and its caller.
type fakeControl struct {
	controlv1.UnimplementedControlServer
	reloaded chan string
}

func (c *fakeControl) Reload(_ context.Context, r *controlv1.ReloadRequest) (*controlv1.ReloadResponse, error) {
	if r.GetRow() == "nope" {
		return nil, status.Error(codes.NotFound, `there is no row "nope"`)
	}
	c.reloaded <- r.GetRow()
	return &controlv1.ReloadResponse{Generation: 2, Held: durationpb.New(2340 * time.Microsecond)}, nil
}

func TestReloadIsACommandWhereTheConfigurationAllowsIt(t *testing.T) {
	control := &fakeControl{reloaded: make(chan string, 4)}
	e := newEditor(t, sayOrHang)
	e.config = map[string]any{"reload": true, "cancelLimitMs": 30000}
	e.more = func(s grpc.ServiceRegistrar) { controlv1.RegisterControlServer(s, control) }
	e.open()
	for _, test := range []struct{ prompt, want, reloaded string }{
		{"/reload bash", "Row `bash` has been reloaded: generation 2, calls were held for 2.3ms.", "bash"},
		{"/reload acp", "Row `acp` is being reloaded: this connection stays.", "acp"},
		{"/reload nope", "row `nope` was not reloaded: there is no row \\\"nope\\\"", ""},
		{"/reload", "Say which: `/reload <row>`. `dsh ps` lists the rows.", ""},
		{
			"/help", "- `/tools`: List the tools that the model can use\\n- `/tasks`: List the background tasks of this session\\n" +
				"- `/kill <task id>`: Kill a background task of this session\\n- `/reload <row>`: Replace the running instance of a plugin\\n" +
				"- `/help`: List these commands\\n", "",
		},
	} {
		e.send(promptLine("1", "s1", test.prompt))
		e.expect(messageLine("s1", test.want), stopLine("1", "end_turn"))
		if test.reloaded != "" {
			if got := <-control.reloaded; got != test.reloaded {
				t.Errorf("%s reloaded %q", test.prompt, got)
			}
		}
	}
}

func TestReloadIsAnOrdinaryWordElsewhere(t *testing.T) {
	e := newEditor(t, sayOrHang).open()
	e.send(promptLine("1", "s1", "/reload bash"))
	e.expect(messageLine("s1", "/reload bash"), stopLine("1", "end_turn"))
}
