package llm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/llmv1"
	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// modelFunc is a Model of one function.
type modelFunc func(context.Context, *llm.Request, func(*llm.Event) error) (llm.Reason, error)

func (f modelFunc) Generate(ctx context.Context, req *llm.Request, emit func(*llm.Event) error) (llm.Reason, error) {
	return f(ctx, req, emit)
}

// client returns a client of a plugin that serves the model.
func client(t *testing.T, m llm.Model) *llm.Client {
	t.Helper()
	return clientOf(t, func(c *sdk.Context) { llm.Serve(c, m) })
}

func clientOf(t *testing.T, register func(*sdk.Context)) *llm.Client {
	t.Helper()
	p := sdk.Define(sdk.Manifest{Name: "model", Provides: []sdk.Seam{llm.Seam}}, sdk.NoConfig{},
		func(c *sdk.Context, _ sdk.NoConfig) error {
			register(c)
			return nil
		})
	return llm.NewClient(plugintest.Start(t, p, plugintest.Options{}).Conn())
}

// generate collects an answer, one line an event.
func generate(ctx context.Context, c *llm.Client) (string, llm.Reason, error) {
	var got []string
	reason, err := c.Generate(ctx, &llm.Request{SessionId: "s1", Messages: []*llm.Message{{Role: llm.User, Text: "hello"}}},
		func(e *llm.Event) error {
			switch e := e.GetEvent().(type) {
			case *llmv1.GenerateResponse_Text:
				got = append(got, "text "+e.Text)
			case *llmv1.GenerateResponse_Retry:
				got = append(got, fmt.Sprintf("retry after %d ms: %s", e.Retry.GetDelayMs(), e.Retry.GetReason()))
			case *llmv1.GenerateResponse_Reasoning:
				got = append(got, "reasoning "+e.Reasoning)
			case *llmv1.GenerateResponse_ToolCall:
				got = append(got, fmt.Sprintf("call %s %s %s", e.ToolCall.GetId(), e.ToolCall.GetName(), e.ToolCall.GetArguments()))
			case *llmv1.GenerateResponse_Usage:
				got = append(got, fmt.Sprintf("usage %d+%d of %d", e.Usage.GetInputTokens(), e.Usage.GetOutputTokens(), e.Usage.GetContextWindow()))
			}
			return nil
		})
	return strings.Join(got, "\n"), reason, err
}

func TestEventsAndTheReasonArriveInOrder(t *testing.T) {
	for _, want := range []llm.Reason{llm.Stop, llm.MaxTokens, llm.Refused} {
		c := client(t, modelFunc(func(_ context.Context, req *llm.Request, emit func(*llm.Event) error) (llm.Reason, error) {
			return want, errors.Join(
				emit(llm.RetryEvent("overloaded", 1500*time.Millisecond)),
				emit(llm.ReasoningEvent("hm")),
				emit(llm.TextEvent(req.GetMessages()[0].GetText())),
				emit(llm.ToolCallEvent(&llm.ToolCall{Id: "c1", Name: "bash", Arguments: "{}"})),
				emit(llm.UsageEvent(&llm.Usage{InputTokens: 1, OutputTokens: 2, ContextWindow: 3})))
		}))
		got, reason, err := generate(t.Context(), c)
		if err != nil || reason != want || got != "retry after 1500 ms: overloaded\nreasoning hm\ntext hello\ncall c1 bash {}\nusage 1+2 of 3" {
			t.Errorf("%v: %q, %v, %v", want, got, reason, err)
		}
	}
}

// lister is a Model that can answer as several.
type lister struct {
	llm.Model
	models []*llm.ModelInfo
	err    error
}

func (l lister) Models(context.Context) ([]*llm.ModelInfo, error) { return l.models, l.err }

func TestModelsAreThoseThatTheAdapterLists(t *testing.T) {
	silent := modelFunc(nil)
	for _, tt := range []struct {
		name     string
		register func(*sdk.Context)
		want     string
		err      string
	}{
		{"two", func(c *sdk.Context) {
			llm.Serve(c, lister{silent, []*llm.ModelInfo{{Id: "small", Name: "Small"}, {Id: "big", Name: "Big"}}, nil})
		}, "small=Small big=Big", ""},
		{"an adapter that lists none", func(c *sdk.Context) { llm.Serve(c, silent) }, "", ""},
		{"an adapter that does not know of it", func(c *sdk.Context) { llmv1.RegisterLlmServer(c, rawServer{}) }, "", ""},
		{"a failure", func(c *sdk.Context) {
			llm.Serve(c, lister{silent, nil, status.Error(codes.Unavailable, "the endpoint is down")})
		}, "", "the endpoint is down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			models, err := clientOf(t, tt.register).Models(t.Context())
			var got []string
			for _, m := range models {
				got = append(got, m.GetId()+"="+m.GetName())
			}
			if strings.Join(got, " ") != tt.want || tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != tt.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestAnErrorIsWhatTheAdapterSaid(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code codes.Code
	}{
		{"plain", errors.New("no such model: check the key \"model\""), codes.Unknown},
		{"with a status", status.Error(codes.Unauthenticated, "the key was refused"), codes.Unauthenticated},
		{"a deadline of its own", context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := client(t, modelFunc(func(_ context.Context, _ *llm.Request, emit func(*llm.Event) error) (llm.Reason, error) {
				if err := emit(llm.TextEvent("half")); err != nil {
					return 0, err
				}
				return 0, tt.err
			}))
			want := tt.err.Error()
			if s, ok := status.FromError(tt.err); ok {
				want = s.Message()
			}
			got, _, err := generate(t.Context(), c)
			if err == nil || err.Error() != want || status.Code(err) != tt.code {
				t.Errorf("error %v (%v), want %v (%v)", err, status.Code(err), want, tt.code)
			}
			if got != "text half" {
				t.Errorf("got %q before the error", got)
			}
		})
	}
}

func TestAPanicFailsItsCallOnly(t *testing.T) {
	panics := true
	c := client(t, modelFunc(func(context.Context, *llm.Request, func(*llm.Event) error) (llm.Reason, error) {
		if panics {
			panics = false
			panic("boom")
		}
		return llm.Stop, nil
	}))
	if _, _, err := generate(t.Context(), c); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "boom") {
		t.Errorf("first call: %v", err)
	}
	if _, reason, err := generate(t.Context(), c); err != nil || reason != llm.Stop {
		t.Errorf("second call: %v, %v", reason, err)
	}
}

func TestFinishingWithoutAReasonIsAnError(t *testing.T) {
	c := client(t, modelFunc(func(context.Context, *llm.Request, func(*llm.Event) error) (llm.Reason, error) { return 0, nil }))
	if _, _, err := generate(t.Context(), c); err == nil || err.Error() != "the model adapter finished without a reason" {
		t.Errorf("%v", err)
	}
}

// rawServer sends events as they are, as an adapter in another language might.
type rawServer struct {
	llmv1.UnimplementedLlmServer
	events []*llm.Event
}

func (s rawServer) Generate(_ *llm.Request, stream llmv1.Llm_GenerateServer) error {
	for _, e := range s.events {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	return nil
}

func TestAStreamEndsWithItsFinish(t *testing.T) {
	finish := &llm.Event{Event: &llmv1.GenerateResponse_Finish{Finish: &llmv1.Finish{Reason: llm.Stop}}}
	for _, tt := range []struct {
		name   string
		events []*llm.Event
		want   string
	}{
		{"without a finish", []*llm.Event{llm.TextEvent("half")}, "the model's answer was cut"},
		{"empty", nil, "the model's answer was cut"},
		{"text after the finish", []*llm.Event{finish, llm.TextEvent("more")}, "the model's answer went on after its finish"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := clientOf(t, func(c *sdk.Context) { llmv1.RegisterLlmServer(c, rawServer{events: tt.events}) })
			if _, _, err := generate(t.Context(), c); err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func TestCancellingReachesTheModel(t *testing.T) {
	running, ended := make(chan struct{}), make(chan error, 1)
	c := client(t, modelFunc(func(ctx context.Context, _ *llm.Request, _ func(*llm.Event) error) (llm.Reason, error) {
		close(running)
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-running
		cancel()
	}()
	if _, _, err := generate(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("caller: %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("model: %v", err)
	}
}

func TestAConsumerThatFailsEndsTheRequest(t *testing.T) {
	ended := make(chan struct{})
	c := client(t, modelFunc(func(ctx context.Context, _ *llm.Request, emit func(*llm.Event) error) (llm.Reason, error) {
		defer close(ended)
		if err := emit(llm.TextEvent("one")); err != nil {
			return 0, err
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}))
	full := errors.New("the log is full")
	if _, err := c.Generate(t.Context(), &llm.Request{}, func(*llm.Event) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	<-ended
}
