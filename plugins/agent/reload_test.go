package agent_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

func TestLiveSessionsSurviveTheCrashOfTheInstance(t *testing.T) {
	w := newWorld(t)
	session, closed := w.create(), w.create()
	w.rest(w.send(session, "one"))
	if err := w.Close(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	w.instance.Stop()
	w.start(w.host.LastCheckpoint())
	_, _, err := w.Load(t.Context(), session)
	wantStatus(t, err, codes.AlreadyExists, "session "+session+" is already loaded")
	if got := show(w.rest(w.send(session, "two"))); !strings.HasSuffix(got, "turn/end completed") {
		t.Error(got)
	}
	if got := w.request(1).GetMessages(); len(got) != 4 {
		t.Errorf("the model was sent\n%s", showMessages(got))
	}
	wantStatus(t, w.Close(t.Context(), closed), codes.NotFound, "unknown session: "+closed)
}

// router stands in for the host's: it carries calls with a claim to the instance that holds it.
type router struct {
	agentsv1.UnimplementedAgentsServer
	to agentsv1.AgentsClient
}

func claim(ctx context.Context) context.Context {
	return sdk.WithClaim(ctx, metadata.ValueFromIncomingContext(ctx, api.MetadataClaim)[0])
}

func (r router) Cancel(ctx context.Context, req *agentsv1.CancelRequest) (*agentsv1.CancelResponse, error) {
	return r.to.Cancel(claim(ctx), req)
}

func (r router) Answer(ctx context.Context, req *agentsv1.AnswerRequest) (*agentsv1.AnswerResponse, error) {
	return r.to.Answer(claim(ctx), req)
}

func (r router) Options(ctx context.Context, req *agentsv1.OptionsRequest) (*agentsv1.OptionsResponse, error) {
	return r.to.Options(claim(ctx), req)
}

func (r router) SetOption(ctx context.Context, req *agentsv1.SetOptionRequest) (*agentsv1.SetOptionResponse, error) {
	return r.to.SetOption(claim(ctx), req)
}

func (r router) Inject(ctx context.Context, req *agentsv1.InjectRequest) (*agentsv1.InjectResponse, error) {
	return r.to.Inject(claim(ctx), req)
}

func (r router) Close(ctx context.Context, req *agentsv1.CloseRequest) (*agentsv1.CloseResponse, error) {
	return r.to.Close(claim(ctx), req)
}

func (r router) Prompt(req *agentsv1.PromptRequest, down grpc.ServerStreamingServer[agentsv1.PromptResponse]) error {
	up, err := r.to.Prompt(claim(down.Context()), req)
	for err == nil {
		var answer *agentsv1.PromptResponse
		if answer, err = up.Recv(); err == nil {
			err = down.Send(answer)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (r router) Subscribe(req *agentsv1.SubscribeRequest, down grpc.ServerStreamingServer[agentsv1.SubscribeResponse]) error {
	up, err := r.to.Subscribe(claim(down.Context()), req)
	for err == nil {
		var answer *agentsv1.SubscribeResponse
		if answer, err = up.Recv(); err == nil {
			err = down.Send(answer)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// reloaded returns an agent with a turn under way in each of the sessions, retired, and its successor.
func reloaded(t *testing.T, sessions int) (old, successor *world, busy []string, running []*agents.Events) {
	old = newWorld(t)
	old.model = hang
	for range sessions {
		session := old.create()
		events := old.send(session, "long")
		old.until(events, "assistant/chunk")
		busy, running = append(busy, session), append(running, events)
	}
	successor = old.reload()
	return old, successor, busy, running
}

// reload retires the instance and returns its successor.
func (w *world) reload() *world {
	w.t.Helper()
	w.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	successor := &world{
		t: w.t, state: w.state, cwd: w.cwd, host: w.host, claimed: agentsv1.NewAgentsClient(w.instance.Conn()),
		answers: make(chan bool, 16), modes: w.modes, models: w.models,
	}
	successor.model = func(_ context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		return llm.Stop, emit(llm.TextEvent("next"))
	}
	successor.start(w.host.LastCheckpoint())
	return successor
}

func TestATurnUnderWayIsReachedThroughTheSuccessor(t *testing.T) {
	old, successor, busy, running := reloaded(t, 2)
	if got := old.host.Claims(); len(got) != 1 {
		t.Errorf("claims %v", got)
	}
	_, _, err := successor.Load(t.Context(), busy[0])
	wantStatus(t, err, codes.AlreadyExists, "session "+busy[0]+" is already loaded")
	if err := successor.Inject(t.Context(), busy[0], "news", plugin, "k"); err != nil {
		t.Fatal(err)
	}
	followed, err := successor.Subscribe(t.Context(), busy[0], 0, true)
	if err != nil {
		t.Fatal(err)
	}
	successor.until(followed, "assistant/chunk")
	successor.cancel(busy[0], "long")
	equal(t, "running", show(old.rest(running[0])), `
context/injected news
assistant/message thinking
step/end
turn/end aborted`)
	equal(t, "followed", show(successor.rest(followed)), `
context/injected news
assistant/message thinking
step/end
turn/end aborted`)
	if got := show(successor.rest(successor.send(busy[0], "more"))); !strings.HasSuffix(got, "turn/end completed") || successor.requestCount() != 1 {
		t.Errorf("%d requests:\n%s", successor.requestCount(), got)
	}
	if got := showMessages(successor.request(0).GetMessages()); !strings.Contains(got, "news") {
		t.Errorf("the model was sent\n%s", got)
	}

	if err := successor.Close(t.Context(), busy[1]); err != nil {
		t.Fatal(err)
	}
	old.until(running[1], "turn/end")
	wantStatus(t, successor.Close(t.Context(), busy[1]), codes.NotFound, "unknown session: "+busy[1])
	successor.load(busy[1])
	old.instance.Stop()
	if got := old.host.Claims(); len(got) != 0 {
		t.Errorf("claims %v", got)
	}
}

func TestAPromptDuringAReloadIsQueuedWhereTheTurnRuns(t *testing.T) {
	old, successor, busy, running := reloaded(t, 1)
	queued := successor.send(busy[0], "queued")
	successor.cancel(busy[0], "queued")
	successor.cancel(busy[0], "long")
	old.until(running[0], "turn/end")
	equal(t, "queued", show(successor.rest(queued)), `
turn/start
user/message queued
turn/end aborted`)
}

func TestASuccessorOpensWhatACrashedPredecessorHad(t *testing.T) {
	old, successor, busy, _ := reloaded(t, 1)
	old.instance.Stop()
	if got := show(successor.rest(successor.send(busy[0], "more"))); !strings.HasSuffix(got, "turn/end completed") {
		t.Error(got)
	}
}

func TestARetiredInstanceWithoutASuccessorGoesOn(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	w.rest(w.send(session, "one"))
	w.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	for _, prompt := range []string{"two", "three"} {
		if got := show(w.rest(w.send(session, prompt))); !strings.HasSuffix(got, "turn/end completed") {
			t.Error(got)
		}
	}
	w.cancel(session, "two")
	if got := len(w.request(2).GetMessages()); got != 6 {
		t.Errorf("the model was sent %d messages", got)
	}
}

func TestAnInstanceThatResumesKeepsItsSessions(t *testing.T) {
	w := newWorld(t)
	w.model = func(ctx context.Context, n int, req *llm.Request, emit emit) (llm.Reason, error) {
		if n == 0 {
			return hang(ctx, n, req, emit)
		}
		return llm.Stop, emit(llm.TextEvent("fine"))
	}
	busy, idle := w.create(), w.create()
	running := w.send(busy, "long")
	w.until(running, "assistant/chunk")
	w.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	w.instance.Resume()
	w.cancel(busy, "long")
	w.until(running, "turn/end")
	for _, session := range []string{busy, idle} {
		if got := show(w.rest(w.send(session, "more"))); !strings.HasSuffix(got, "turn/end completed") {
			t.Error(got)
		}
	}
	if got := string(w.host.LastCheckpoint()); strings.Contains(got, "agent-") || !strings.Contains(got, busy) || !strings.Contains(got, idle) {
		t.Errorf("checkpoint %s", got)
	}
	w.instance.Stop()
	if got := w.host.Claims(); len(got) != 0 {
		t.Errorf("claims %v", got)
	}
}
