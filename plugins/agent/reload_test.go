package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

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

// router stands in for the host's: it carries calls with a claim to the instance that holds it, and others to the active one.
type router struct {
	agentsv1.UnimplementedAgentsServer
	*world
}

func (r router) pick(ctx context.Context) (context.Context, agentsv1.AgentsClient) {
	if claims := metadata.ValueFromIncomingContext(ctx, api.MetadataClaim); len(claims) > 0 {
		return sdk.WithClaim(ctx, claims[0]), r.claimed
	}
	<-r.switched
	return ctx, agentsv1.NewAgentsClient(r.successor.instance.Conn())
}

func (r router) Create(ctx context.Context, req *agentsv1.CreateRequest) (*agentsv1.CreateResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Create)
}

func (r router) Load(ctx context.Context, req *agentsv1.LoadRequest) (*agentsv1.LoadResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Load)
}

func (r router) Close(ctx context.Context, req *agentsv1.CloseRequest) (*agentsv1.CloseResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Close)
}

func (r router) Delete(ctx context.Context, req *agentsv1.DeleteRequest) (*agentsv1.DeleteResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Delete)
}

func (r router) Cancel(ctx context.Context, req *agentsv1.CancelRequest) (*agentsv1.CancelResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Cancel)
}

func (r router) Answer(ctx context.Context, req *agentsv1.AnswerRequest) (*agentsv1.AnswerResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Answer)
}

func (r router) Options(ctx context.Context, req *agentsv1.OptionsRequest) (*agentsv1.OptionsResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Options)
}

func (r router) SetOption(ctx context.Context, req *agentsv1.SetOptionRequest) (*agentsv1.SetOptionResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.SetOption)
}

func (r router) Inject(ctx context.Context, req *agentsv1.InjectRequest) (*agentsv1.InjectResponse, error) {
	return pass(ctx, r, req, agentsv1.AgentsClient.Inject)
}

func (r router) Prompt(req *agentsv1.PromptRequest, down grpc.ServerStreamingServer[agentsv1.PromptResponse]) error {
	ctx, to := r.pick(down.Context())
	up, err := to.Prompt(ctx, req)
	return carry(up, err, down)
}

func (r router) Subscribe(req *agentsv1.SubscribeRequest, down grpc.ServerStreamingServer[agentsv1.SubscribeResponse]) error {
	ctx, to := r.pick(down.Context())
	up, err := to.Subscribe(ctx, req)
	return carry(up, err, down)
}

// pass makes a call where it belongs.
func pass[Q, A any](
	ctx context.Context, r router, req Q, call func(agentsv1.AgentsClient, context.Context, Q, ...grpc.CallOption) (A, error),
) (A, error) {
	ctx, to := r.pick(ctx)
	return call(to, ctx, req)
}

// carry hands a stream on.
func carry[M any](up grpc.ServerStreamingClient[M], err error, down grpc.ServerStreamingServer[M]) error {
	for err == nil {
		var answer *M
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
	return w.succeed()
}

// succeed starts the successor of a retired instance. Calls that have no claim go there from now on.
func (w *world) succeed() *world {
	w.t.Helper()
	successor := &world{
		t: w.t, state: w.state, cwd: w.cwd, host: w.host, claimed: agentsv1.NewAgentsClient(w.instance.Conn()),
		answers: make(chan bool, 16), modes: w.modes, models: w.models, switched: make(chan struct{}),
	}
	successor.model = func(_ context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		return llm.Stop, emit(llm.TextEvent("next"))
	}
	successor.start(w.host.LastCheckpoint())
	w.successor = successor
	close(w.switched)
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

func TestWhatReachesARetiredInstanceIsDoneByItsSuccessor(t *testing.T) {
	old := newWorld(t)
	idle, closed := old.create(), old.create()
	old.rest(old.send(idle, "one"))
	successor := old.reload()

	created := old.create()
	for _, session := range []string{idle, created} {
		if got := show(old.rest(old.send(session, "two"))); !strings.HasSuffix(got, "turn/end completed") {
			t.Error(got)
		}
		old.cancel(session, "two")
	}
	if old.requestCount() != 1 || successor.requestCount() != 2 {
		t.Errorf("the model was asked %d times by the old instance and %d times by the new one", old.requestCount(), successor.requestCount())
	}
	if got := len(successor.request(0).GetMessages()); got != 4 {
		t.Errorf("the model was sent %d messages", got)
	}
	if err := old.Close(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	old.load(closed)
	if err := old.Delete(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, successor.Close(t.Context(), closed), codes.NotFound, "unknown session: "+closed)
	if got := old.host.Claims(); len(got) != 0 {
		t.Errorf("claims %v", got)
	}
}

func TestASessionThatIsNotHereYetWhenTheInstanceRetiresIsLeftAsItWas(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	w.instance.Stop()
	busy := hold(t, filepath.Join(w.state, session+".jsonl"))
	w.start(w.host.LastCheckpoint())
	waiting := make(chan *agents.Events, 1)
	go func() { // the call waits for the one that has the log
		events, err := w.Prompt(t.Context(), agents.Prompt{SessionID: session, PromptID: "one", Content: text("one")})
		if err != nil {
			t.Error(err)
		}
		waiting <- events
	}()
	for stacks := make([]byte, 1<<20); !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*agent).adopt(")); {
		runtime.Gosched() // nothing else tells that the call has come so far
	}
	w.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	if got, want := string(w.host.LastCheckpoint()), `{"sessions":{"`+session+`":""}}`; got != want {
		t.Errorf("checkpoint %s, want %s", got, want)
	}
	successor := w.succeed()
	for deadline := time.Now().Add(10 * time.Second); len(w.host.Claims()) > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("claims %v", w.host.Claims())
		}
	}
	busy.Close()
	if got := show(w.rest(<-waiting)); !strings.HasSuffix(got, "turn/end completed") || successor.requestCount() != 1 {
		t.Errorf("%d requests:\n%s", successor.requestCount(), got)
	}
}

// hold locks a log as another process would.
func hold(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAnInstanceThatResumesKnowsWhatItsSuccessorDid(t *testing.T) {
	old := newWorld(t)
	kept, closed := old.create(), old.create()
	successor := old.reload()
	created := successor.create()
	if err := successor.Close(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	successor.instance.Stop()
	old.instance.Resume()
	for _, session := range []string{kept, created} {
		if got := show(old.rest(old.send(session, "more"))); !strings.HasSuffix(got, "turn/end completed") {
			t.Error(got)
		}
	}
	wantStatus(t, old.Close(t.Context(), closed), codes.NotFound, "unknown session: "+closed)
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
