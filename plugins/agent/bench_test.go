package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/plugins/agent"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/llmv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

// scriptedModel is a model that does not decode what it is sent: what is measured is the agent. Every other request is answered with a
// call.
type scriptedModel struct{ requests int }

func (m *scriptedModel) register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: llmv1.Llm_ServiceDesc.ServiceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Generate", ServerStreams: true, Handler: m.generate}},
	}, m)
}

func (m *scriptedModel) generate(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&unread{}); err != nil {
		return err
	}
	m.requests++
	event := llm.TextEvent("It is done.")
	if m.requests%2 == 1 {
		event = llm.ToolCallEvent(&llm.ToolCall{Id: fmt.Sprint("c", m.requests), Name: "bash", Arguments: `{"command":"ls -l","description":"List the files"}`})
	}
	if err := stream.SendMsg(event); err != nil {
		return err
	}
	return stream.SendMsg(&llm.Event{Event: &llmv1.GenerateResponse_Finish{Finish: &llmv1.Finish{Reason: llm.Stop}}})
}

// unread is a message that is not decoded.
type unread struct{}

func (*unread) Reset()                   {}
func (*unread) String() string           { return "" }
func (*unread) ProtoMessage()            {}
func (*unread) Unmarshal([]byte) error   { return nil }
func (*unread) Marshal() ([]byte, error) { return nil, nil }

// cpu is the time that the process has computed: a machine with other work measures it better than the time that went by.
func cpu(b testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// newScriptedWorld is a world whose model is scripted and whose tool prints so many lines of 22 bytes.
func newScriptedWorld(b testing.TB, lines int) *world {
	w := &world{t: b, state: memoryDir(b), cwd: b.TempDir(), answers: make(chan bool, 1)}
	printed := strings.Repeat("parse.go parse_test.go\n", lines)
	w.tool = func(call *toolsv1.Call, _ <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		w.calls = nil
		send(presented("ls"))
		send(started())
		send(output(printed))
		send(result(printed))
		return nil
	}
	w.instance = plugintest.Start(b, agent.Plugin(), plugintest.Options{
		Config: map[string]any{"stateDir": w.state},
		Seams: func(r grpc.ServiceRegistrar) {
			(&scriptedModel{}).register(r)
			toolsv1.RegisterToolsServer(r, worldServer{world: w})
		},
	})
	w.Client = agents.NewClient(w.instance.Conn())
	return w
}

// BenchmarkToolTurn is a turn with one tool call, in a fresh session and as a later prompt of a session.
func BenchmarkToolTurn(b *testing.B) {
	for _, before := range []int{0, 300, 3000} {
		b.Run(fmt.Sprintf("after=%d", before), func(b *testing.B) {
			w := newScriptedWorld(b, 4)
			session := w.create()
			for i := range before {
				w.rest(w.send(session, fmt.Sprint("before ", i)))
			}
			n := 0
			began := cpu(b)
			for b.Loop() {
				if before == 0 && n%20 == 19 { // stay fresh
					session = w.create()
				}
				n++
				w.rest(w.send(session, fmt.Sprint("prompt ", n)))
			}
			b.ReportMetric(float64(cpu(b)-began)/float64(n), "cpu-ns/op")
		})
	}
}

// writeLong stores a session of 20,000 events and 50 MiB: 2,000 turns, each with one call that prints 12 KiB to the terminal and to the model.
func (w *world) writeLong(id string) {
	w.t.Helper()
	printed := strings.Repeat("\tif err != nil {\n\t\treturn fmt.Errorf(\"parse %q: %w\", name, err) // <- here\n\t}\n", 160)
	var log []byte
	var seq uint64
	add := func(data agents.Data) {
		seq++
		line, err := agents.Encode(agents.Event{Seq: seq, Time: time.Unix(1_800_000_000, 0), Data: data})
		if err != nil {
			w.t.Fatal(err)
		}
		log = append(append(log, line...), '\n')
	}
	add(&agents.SessionCreated{Format: agents.Format, SessionID: id, Cwd: w.cwd})
	for i := range 2000 {
		call := fmt.Sprint("c", i)
		add(&agents.TurnStart{})
		add(&agents.UserMessage{PromptID: fmt.Sprint(i), Content: text("go on")})
		add(&agents.StepStart{})
		add(&agents.AssistantMessage{ToolCalls: []agents.ToolRequest{{CallID: call, Name: "bash", Arguments: `{"command":"cat parse.go"}`}}})
		add(&agents.ToolCall{CallID: call, Name: "bash", Arguments: `{"command":"cat parse.go"}`, Presentation: agents.Presentation{Title: "cat", Kind: "execute"}})
		add(&agents.ToolStart{CallID: call})
		add(&agents.ToolOutput{CallID: call, Text: printed})
		add(&agents.ToolResult{CallID: call, Content: []agents.Content{{Type: "text", Text: printed}}})
		add(&agents.StepEnd{})
		add(&agents.TurnEnd{Reason: agents.ReasonCompleted})
	}
	w.t.Logf("%d events, %d MiB", seq, len(log)>>20)
	w.write(id, log)
}

// BenchmarkLoad loads a session of 20,000 events and 50 MiB.
func BenchmarkLoad(b *testing.B) {
	w := newScriptedWorld(b, 4)
	w.writeLong("long")
	n, began := 0, cpu(b)
	for b.Loop() {
		n++
		if _, _, err := w.Load(b.Context(), "long"); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(b.Context(), "long"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu(b)-began)/float64(n), "cpu-ns/op")
}

// BenchmarkList lists 10,000 sessions, page by page: first by an instance that has just started, then again and again.
func BenchmarkList(b *testing.B) {
	w := newScriptedWorld(b, 4)
	for i := range 10_000 {
		id := fmt.Sprintf("s%05d", i)
		w.write(id, fmt.Appendf(nil, `{"seq":1,"time":"2027-01-01T00:00:00.000Z","type":"session/created","format":1,"session_id":%q,"cwd":"/w"}`+"\n", id))
		info := fmt.Sprintf(`{"cwd":"/w","title":"Fix the parser","updated":"2027-01-01T00:%02d:%02dZ"}`, i/60%60, i%60)
		if err := os.WriteFile(filepath.Join(w.state, id+".info"), []byte(info), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	list := func(all bool) {
		token, n := "", 0
		for {
			page, next, err := w.List(b.Context(), "", token)
			if err != nil {
				b.Fatal(err)
			}
			n += len(page)
			if token = next; token == "" || !all {
				break
			}
		}
		if all && n != 10_000 {
			b.Fatalf("%d sessions", n)
		}
	}
	b.Run("first page, cold", func(b *testing.B) {
		began, n := cpu(b), 0
		for b.Loop() {
			n++
			w.restart()
			list(false)
		}
		b.ReportMetric(float64(cpu(b)-began)/float64(n), "cpu-ns/op")
	})
	b.Run("first page", func(b *testing.B) {
		for b.Loop() {
			list(false)
		}
	})
	b.Run("all pages", func(b *testing.B) {
		for b.Loop() {
			list(true)
		}
	})
}
