package acp_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/plugins/acp"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/api/stdiov1"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

const patience = 10 * time.Second

// editor drives a bridge as an editor does: it writes lines and compares what comes back, frame by frame.
type editor struct {
	t      testing.TB
	stdio  *fakeStdio
	agents *fakeAgents
	tools  *fakeTools // nil: nobody serves them, and no commands are announced
	host   *plugintest.Host
	bridge *plugintest.Instance
	cwd    string
	config any
	more   func(grpc.ServiceRegistrar) // further seams; may be nil
}

func newEditor(t testing.TB, turn func(*fakeTurn) agents.TurnEnd) *editor {
	e := &editor{t: t, stdio: newFakeStdio(), agents: newFakeAgents(turn), host: &plugintest.Host{}, cwd: t.TempDir()}
	t.Cleanup(e.agents.turns.Wait)
	t.Cleanup(func() { e.agents.endAll() })
	return e
}

// endAll cancels the turns that a test has left.
func (a *fakeAgents) endAll() {
	a.change(func() {
		for _, s := range a.sessions {
			for id, cancelled := range s.cancels {
				close(cancelled)
				delete(s.cancels, id)
			}
		}
	})
}

func (e *editor) start() *editor {
	e.t.Helper()
	e.bridge = plugintest.Start(e.t, acp.Plugin(), plugintest.Options{
		Host: e.host, Config: e.config, Checkpoint: e.host.LastCheckpoint(),
		Seams: func(s grpc.ServiceRegistrar) {
			stdiov1.RegisterStdioServer(s, e.stdio)
			agentsv1.RegisterAgentsServer(s, e.agents)
			if e.tools != nil {
				e.tools.register(s)
			}
			if e.more != nil {
				e.more(s)
			}
		},
	})
	return e
}

// crash plays the death of the bridge: nothing more comes from it. The next one starts with a checkpoint.
func (e *editor) crash(checkpoint []byte) {
	e.t.Helper()
	e.stdio.change(func() { close(e.stdio.lost) })
	e.bridge.Stop()
	e.agents.change(func() { e.agents.calls = nil })
	e.host = hostWith(e.t, checkpoint)
	e.start()
}

// open starts the bridge for an editor that shows terminals, with one session: s1.
func (e *editor) open() *editor {
	e.t.Helper()
	e.start()
	e.initialize(true)
	e.newSession("s1")
	return e
}

func (e *editor) initialize(terminals bool) {
	e.t.Helper()
	meta := ""
	if terminals {
		meta = `"_meta":{"terminal_output":true}`
	}
	e.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{` + meta + `}}}`)
	if got := e.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":1,`) {
		e.t.Fatalf("initialize was answered %s", got)
	}
}

func (e *editor) newSession(id string) {
	e.t.Helper()
	e.send(`{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"` + e.cwd + `","mcpServers":[]}}`)
	e.expect(`{"jsonrpc":"2.0","id":"new","result":{"sessionId":"` + id + `"}}`)
}

// send writes lines in one write.
func (e *editor) send(lines ...string) {
	e.stdio.feed([]byte(strings.Join(lines, "\n") + "\n"))
}

func promptLine(id, session, text string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/prompt","params":{"sessionId":"` + session +
		`","prompt":[{"type":"text","text":"` + text + `"}]}}`
}

func cancelLine(session string) string {
	return `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + session + `"}}`
}

func sessionLine(id, method, session string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"sessionId":"` + session + `"}}`
}

func modeLine(id, session, mode string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/set_mode","params":{"sessionId":"` + session + `","modeId":"` + mode + `"}}`
}

func optionLine(id, session, option, value string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/set_config_option","params":{"sessionId":"` + session +
		`","configId":"` + option + `","value":"` + value + `"}}`
}

func resultLine(id, result string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
}

func stopLine(id, reason string) string { return resultLine(id, `{"stopReason":"`+reason+`"}`) }

func errorLine(id, code, message string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":` + code + `,"message":"` + message + `"}}`
}

func updateLine(session, update string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session + `","update":` + update + `}}`
}

func messageLine(session, text string) string {
	return updateLine(session, `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"`+text+`"}}`)
}

// next takes the next frame.
func (e *editor) next() string {
	e.t.Helper()
	e.waitFor("a frame", func() bool { return len(e.stdio.frames) > 0 })
	var frame string
	e.stdio.change(func() {
		frame = e.stdio.frames[0]
		e.stdio.frames = e.stdio.frames[1:]
	})
	if !strings.HasSuffix(frame, "\n") || strings.Count(frame, "\n") != 1 {
		e.t.Fatalf("a write does not end with its line: %q", frame)
	}
	return strings.TrimSuffix(frame, "\n")
}

// expect takes the next frames and compares them.
func (e *editor) expect(frames ...string) {
	e.t.Helper()
	for _, want := range frames {
		if got := e.next(); got != want {
			e.t.Fatalf("\n got %s\nwant %s", got, want)
		}
	}
}

// quiet checks that the bridge has written nothing else: a request it answers at once is answered next.
func (e *editor) quiet() {
	e.t.Helper()
	e.send(`{"jsonrpc":"2.0","id":"quiet","method":"authenticate","params":{"methodId":"none"}}`)
	e.expect(`{"jsonrpc":"2.0","id":"quiet","result":{}}`)
}

// waitFor waits for something about stdin and stdout.
func (e *editor) waitFor(what string, ready func() bool) {
	e.t.Helper()
	stop := make(chan struct{})
	timer := time.AfterFunc(patience, func() { close(stop) })
	defer timer.Stop()
	if !e.stdio.await(stop, ready) {
		e.t.Fatalf("%s: not after %s", what, patience)
	}
}

// count counts the calls of the agent that begin with a word.
func (a *fakeAgents) count(call string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, c := range a.calls {
		if strings.HasPrefix(c, call+" ") {
			n++
		}
	}
	return n
}

// waitForCall waits for a call of the agent and returns all so far.
func (e *editor) waitForCall(call string) {
	e.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		e.agents.mu.Lock()
		calls, changed := e.agents.calls, e.agents.changed
		e.agents.mu.Unlock()
		for _, c := range calls {
			if c == call {
				return
			}
		}
		select {
		case <-changed:
		case <-timer.C:
			e.t.Fatalf("no call %q of the agent; calls: %q", call, calls)
		}
	}
}

// waitForCheckpoint waits until the checkpoint has a text.
func (e *editor) waitForCheckpoint(text string) {
	e.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(string(e.host.LastCheckpoint()), text); runtime.Gosched() {
		if time.Now().After(deadline) {
			e.t.Fatalf("the checkpoint is %s", e.host.LastCheckpoint())
		}
	}
}

func (e *editor) retire(reason pluginv1.RetireRequest_Reason) {
	e.bridge.Retire(reason)
}

// hostWith is a host that has only a checkpoint.
func hostWith(t testing.TB, checkpoint []byte) *plugintest.Host {
	t.Helper()
	h := &plugintest.Host{}
	if _, err := h.Checkpoint(t.Context(), &pluginv1.CheckpointRequest{State: checkpoint}); err != nil {
		t.Fatal(err)
	}
	return h
}
