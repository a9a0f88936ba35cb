package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/plugins/agent"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/llmv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// emit sends a piece of the model's answer.
type emit func(*llm.Event) error

// world is an agent with stand-ins for the model and the tools.
type world struct {
	*agents.Client
	t        testing.TB
	instance *plugintest.Instance
	state    string // the directory of the logs
	cwd      string
	host     *plugintest.Host

	mu       sync.Mutex
	requests []*llm.Request
	calls    []*toolsv1.Call
	asked    int

	// model answers the nth request, from 0.
	model func(ctx context.Context, n int, req *llm.Request, emit emit) (llm.Reason, error)
	// tool runs a call: it sends what it likes, the last thing being a result. cancelled is closed when the call is cancelled.
	tool func(call *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error
	list func(context.Context) error
	// answers are those of the agent to the questions of calls.
	answers chan bool
	modes   []*toolsv1.Mode
	// models are offered by the adapter; nil: it knows nothing of models.
	models    []*llm.ModelInfo
	modelsErr error
	claimed   agentsv1.AgentsClient // has the calls with a claim
	// successor has those without, once switched is closed.
	successor *world
	switched  chan struct{}
}

type worldServer struct {
	llmv1.UnimplementedLlmServer
	toolsv1.UnimplementedToolsServer
	*world
}

// newWorld starts an agent. Change the stand-ins before the first prompt.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, state: filepath.Join(memoryDir(t), "sessions"), cwd: t.TempDir(), host: &plugintest.Host{}, answers: make(chan bool, 16), switched: make(chan struct{})}
	w.model = func(_ context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		return llm.Stop, emit(llm.TextEvent("hello"))
	}
	w.start(nil)
	return w
}

// memoryDir is a directory on a file system that syncs at once, where there is one.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "dsh")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start starts an instance: another one after the first has been stopped, or beside it.
func (w *world) start(checkpoint []byte) {
	w.t.Helper()
	w.instance = plugintest.Start(w.t, agent.Plugin(), plugintest.Options{
		Config: map[string]any{"stateDir": w.state, "systemPrompt": "be good"},
		Seams: func(r grpc.ServiceRegistrar) {
			llmv1.RegisterLlmServer(r, worldServer{world: w})
			toolsv1.RegisterToolsServer(r, worldServer{world: w})
			agentsv1.RegisterAgentsServer(r, router{world: w})
		},
		Host: w.host, Checkpoint: checkpoint,
	})
	w.Client = agents.NewClient(w.instance.Conn())
}

func (w *world) restart() {
	w.t.Helper()
	w.instance.Stop()
	w.start(nil)
}

func (w worldServer) Generate(req *llm.Request, stream grpc.ServerStreamingServer[llm.Event]) error {
	w.mu.Lock()
	n := w.asked
	w.asked++
	w.requests = append(w.requests, req)
	w.mu.Unlock()
	reason, err := w.model(stream.Context(), n, req, stream.Send)
	if err != nil || reason == 0 {
		return err
	}
	return stream.Send(&llm.Event{Event: &llmv1.GenerateResponse_Finish{Finish: &llmv1.Finish{Reason: reason}}})
}

func (w worldServer) List(ctx context.Context, _ *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	if w.list != nil {
		if err := w.list(ctx); err != nil {
			return nil, err
		}
	}
	return &toolsv1.ListResponse{Tools: []*toolsv1.Tool{{Name: "bash", InputSchema: `{"type":"object"}`}}, Modes: w.modes}, nil
}

func (w worldServer) Models(ctx context.Context, req *llmv1.ModelsRequest) (*llmv1.ModelsResponse, error) {
	if w.modelsErr != nil {
		return nil, w.modelsErr
	}
	if w.models == nil {
		return w.UnimplementedLlmServer.Models(ctx, req)
	}
	return &llmv1.ModelsResponse{Models: w.models}, nil
}

func (w worldServer) Execute(stream grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.calls = append(w.calls, first.GetCall())
	w.mu.Unlock()
	cancelled := make(chan struct{})
	go func() { // ends with the stream
		defer close(cancelled)
		for {
			req, err := stream.Recv()
			if err != nil || req.GetCancel() != nil {
				return
			}
			w.answers <- req.GetAnswer().GetAllowed()
		}
	}()
	err = w.tool(first.GetCall(), cancelled, func(r *toolsv1.ExecuteResponse) { _ = stream.Send(r) })
	if err == nil {
		<-stream.Context().Done() // the caller hangs up when it has the result
	}
	return err
}

func (w *world) request(n int) *llm.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n >= len(w.requests) {
		w.t.Fatalf("the model was asked %d times", len(w.requests))
	}
	return w.requests[n]
}

func (w *world) requestCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

func (w *world) create() string {
	w.t.Helper()
	id, err := w.Create(w.t.Context(), w.cwd)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func text(s string) []agents.ContentBlock {
	return []agents.ContentBlock{{Type: agents.BlockText, Text: s}}
}

// send sends a prompt that is its own id.
func (w *world) send(session, prompt string) *agents.Events {
	w.t.Helper()
	events, err := w.Prompt(w.t.Context(), agents.Prompt{SessionID: session, PromptID: prompt, Content: text(prompt)})
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// rest reads a stream to its end.
func (w *world) rest(events *agents.Events) []agents.Event {
	w.t.Helper()
	var all []agents.Event
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			w.t.Fatalf("after %s: %v", show(all), err)
		}
		if len(all) > 0 && e.Seq != all[len(all)-1].Seq+1 {
			w.t.Fatalf("event %d follows event %d", e.Seq, all[len(all)-1].Seq)
		}
		all = append(all, e)
	}
}

// until reads a stream up to an event of the type.
func (w *world) until(events *agents.Events, eventType string) agents.Event {
	w.t.Helper()
	for {
		e, err := events.Next()
		if err != nil {
			w.t.Fatalf("waiting for %s: %v", eventType, err)
		}
		if e.Type == eventType {
			return e
		}
	}
}

// history is the whole log as a subscriber sees it.
func (w *world) history(session string) []agents.Event {
	w.t.Helper()
	events, err := w.Subscribe(w.t.Context(), session, 0, false)
	if err != nil {
		w.t.Fatal(err)
	}
	all := w.rest(events)
	if len(all) == 0 || all[0].Seq != 1 {
		w.t.Fatalf("the history begins with %s", show(all))
	}
	return all
}

func (w *world) logFile(session string) string { return filepath.Join(w.state, session+".jsonl") }

// show gives events as text: one a line, the type and what matters of it.
func show(events []agents.Event) string {
	var lines []string
	for _, e := range events {
		line := e.Type
		switch d := e.Data.(type) {
		case *agents.SessionCreated, *agents.TurnStart, *agents.StepStart, *agents.StepEnd:
		case *agents.SessionTitle:
			line += " " + d.Title
		case *agents.UserMessage:
			line += " " + d.Content[0].Text
		case *agents.ContextInjected:
			line += " " + d.Text
		case *agents.AssistantChunk:
			line += " " + d.Text + d.Reasoning
		case *agents.AssistantMessage:
			line += " " + d.Text
			for _, c := range d.ToolCalls {
				line += " [" + c.CallID + " " + c.Name + " " + c.Arguments + "]"
			}
		case *agents.ToolCall:
			line += " " + d.CallID + " " + d.Presentation.Title
		case *agents.ToolAsk:
			line += " " + d.CallID + " " + d.Hook + ": " + d.Reason
		case *agents.ToolAnswer:
			line += " " + d.CallID + " " + string(d.Outcome)
		case *agents.SessionOption:
			line += " " + d.Option + " " + d.Value
		case *agents.ModelRetry:
			line += fmt.Sprintf(" %s (%d ms)", d.Reason, d.DelayMS)
		case *agents.ToolStart:
			line += " " + d.CallID
		case *agents.ToolOutput:
			line += " " + d.CallID + " " + d.Text
		case *agents.ToolResult:
			line += " " + d.CallID
			for _, c := range d.Content {
				line += " " + c.Text
			}
			if d.IsError {
				line += " (" + d.Error.Code + ")"
			}
		case *agents.TurnEnd:
			line += " " + string(d.Reason)
			if d.Error != "" {
				line += ": " + d.Error
			}
		default:
			data, _ := json.Marshal(d)
			line += " " + string(data)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// showMessages gives what the model was sent.
func showMessages(messages []*llm.Message) string {
	var lines []string
	for _, m := range messages {
		line := strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "ROLE_")) + " " + m.GetText()
		for _, c := range m.GetToolCalls() {
			line += fmt.Sprintf(" [%s %s %s]", c.GetId(), c.GetName(), c.GetArguments())
		}
		if m.GetToolCallId() != "" {
			line += " (" + m.GetToolCallId() + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if want = strings.TrimSpace(want); got != want {
		t.Errorf("%s:\n%s\n\nwant:\n%s", what, got, want)
	}
}

func wantStatus(t testing.TB, err error, code codes.Code, message string) {
	t.Helper()
	if status.Code(err) != code || status.Convert(err).Message() != message {
		t.Errorf("got %v, want %v %q", err, code, message)
	}
}

// asks is a model that asks for the calls of a step and answers "done" when there are no further ones. A call is
// "id name arguments".
func asks(steps ...[]string) func(context.Context, int, *llm.Request, emit) (llm.Reason, error) {
	return func(_ context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
		if n >= len(steps) {
			return llm.Stop, emit(llm.TextEvent("done"))
		}
		for _, call := range steps[n] {
			parts := strings.SplitN(call, " ", 3)
			if err := emit(llm.ToolCallEvent(&llm.ToolCall{Id: parts[0], Name: parts[1], Arguments: parts[2]})); err != nil {
				return 0, err
			}
		}
		return llm.Stop, nil
	}
}

func presented(title string) *toolsv1.ExecuteResponse {
	return &toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Presentation{Presentation: &toolsv1.Presentation{Title: title, Kind: toolsv1.Presentation_KIND_EXECUTE, RawInput: `"x"`}}}
}

func ask(reason, key string) *toolsv1.ExecuteResponse {
	return &toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Ask_{Ask: &toolsv1.ExecuteResponse_Ask{Hook: "permissions", Reason: reason, Key: key}}}
}

func started() *toolsv1.ExecuteResponse {
	return &toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Started_{Started: &toolsv1.ExecuteResponse_Started{}}}
}

func output(text string) *toolsv1.ExecuteResponse {
	return &toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Output_{Output: &toolsv1.ExecuteResponse_Output{Data: text}}}
}

func result(text string) *toolsv1.ExecuteResponse {
	return &toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: &toolsv1.Result{
		Content: []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: text}}},
	}}}
}

// echo is a tool that shows, runs and answers.
func echo(call *toolsv1.Call, _ <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
	send(presented("echo " + call.GetArguments()))
	send(started())
	send(output("out"))
	send(result("ran " + call.GetArguments()))
	return nil
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
