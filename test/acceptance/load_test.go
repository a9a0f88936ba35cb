//go:build acceptance

package acceptance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-go/dsh/sdk/agents"
)

// editor is a client that checks nothing and is fast: it measures.
type editor struct {
	t     *testing.T
	home  home
	stdin io.WriteCloser
	stop  func() // ends its input and waits for dsh to leave; once

	mu      sync.Mutex
	answers map[int]chan answer
	last    int // id of a request
	updates int
}

type answer struct {
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	at     time.Time
}

// startEditor starts dsh; it ends with the test.
func startEditor(t *testing.T, home home) *editor {
	t.Helper()
	cmd := exec.Command(dsh, "run", "-c", config)
	cmd.Env = home.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &editor{t: t, home: home, stdin: stdin, answers: map[int]chan answer{}}
	var reading sync.WaitGroup
	reading.Go(func() { e.read(stdout) })
	e.stop = sync.OnceFunc(func() {
		stdin.Close()
		reading.Wait()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("dsh: %v\n%s", err, tail(stderr.Bytes(), 20))
		}
		home.expectNobody(t)
	})
	t.Cleanup(e.stop)
	e.ask("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{"_meta": map[string]any{"terminal_output": true}}})
	return e
}

func (e *editor) read(stdout io.Reader) {
	lines := bufio.NewReaderSize(stdout, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if bytes.HasPrefix(line, []byte(`{"jsonrpc":"2.0","method":"session/update"`)) {
			e.mu.Lock()
			e.updates++
			e.mu.Unlock()
			continue
		}
		var frame struct {
			ID int `json:"id"`
			answer
		}
		if err := json.Unmarshal(line, &frame); err != nil {
			e.t.Errorf("a frame is no JSON: %v", err)
			continue
		}
		frame.at = time.Now()
		e.mu.Lock()
		to := e.answers[frame.ID]
		delete(e.answers, frame.ID)
		e.mu.Unlock()
		if to != nil {
			to <- frame.answer
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, to := range e.answers {
		close(to)
	}
	e.answers = nil
}

// send sends a request and returns where its answer comes.
func (e *editor) send(method string, params any) <-chan answer {
	e.t.Helper()
	to := make(chan answer, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.t.Fatal("dsh has ended")
	}
	e.last++
	e.answers[e.last] = to
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": e.last, "method": method, "params": params})
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.stdin.Write(append(line, '\n')); err != nil {
		e.t.Fatal(err)
	}
	return to
}

// receive waits for a result.
func (e *editor) receive(from <-chan answer) answer {
	e.t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	select {
	case a, ok := <-from:
		if !ok || a.Error != nil {
			e.t.Fatalf("answered: %t, error %s", ok, a.Error)
		}
		return a
	case <-limit.C:
		e.t.Fatal("no answer within two minutes")
	}
	return answer{}
}

func (e *editor) ask(method string, params any) answer {
	e.t.Helper()
	return e.receive(e.send(method, params))
}

func (e *editor) prompt(session, text string) <-chan answer {
	e.t.Helper()
	return e.send("session/prompt", map[string]any{"sessionId": session, "prompt": []any{map[string]any{"type": "text", "text": text}}})
}

func (e *editor) newSession() <-chan answer {
	return e.send("session/new", map[string]any{"cwd": e.home.work, "mcpServers": []any{}})
}

func (e *editor) sessionID(a answer) string {
	var result struct{ SessionID string }
	if err := json.Unmarshal(a.Result, &result); err != nil || result.SessionID == "" {
		e.t.Fatalf("session/new gave %s", a.Result)
	}
	return result.SessionID
}

func (e *editor) ends(a answer) {
	e.t.Helper()
	if string(a.Result) != `{"stopReason":"end_turn"}` {
		e.t.Fatalf("a turn ended with %s", a.Result)
	}
}

// memory is what dsh and its plugins hold for themselves, in bytes; 0 where that cannot be known.
func (h home) memory() (total int) {
	for _, line := range h.processes() {
		pid, _, _ := strings.Cut(line, " ")
		status, _ := os.ReadFile(filepath.Join("/proc", pid, "status")) // ended meanwhile
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				kib, _ := strconv.Atoi(strings.Fields(rest)[0])
				total += kib << 10
			}
		}
	}
	return total
}

// TestThousandSessions has them on one connection, a hundred of them busy.
func TestThousandSessions(t *testing.T) {
	const sessions, busy, probes = 1000, 100, 20
	e := startEditor(t, newHome(t))
	for range 20 { // what the first ones cost is not what each costs
		e.ends(e.receive(e.prompt(e.sessionID(e.receive(e.newSession())), "true")))
	}
	before := e.home.memory()
	start := time.Now()
	var pending []<-chan answer
	for range sessions {
		pending = append(pending, e.newSession())
	}
	var ids []string
	for _, p := range pending {
		ids = append(ids, e.sessionID(e.receive(p)))
	}
	took := time.Since(start)
	each := (e.home.memory() - before) / sessions
	t.Logf("%d sessions in %v: %d bytes for each idle one", sessions, took.Round(time.Millisecond), each)
	if each > 128<<10 {
		t.Errorf("an idle session takes %d bytes", each)
	}

	pending = pending[:0]
	for _, id := range ids[:busy] {
		pending = append(pending, e.prompt(id, "for i in $(seq 20); do echo line $i; sleep 0.2; done"))
	}
	var waits []time.Duration
	for _, id := range ids[busy : busy+probes] {
		start := time.Now()
		a := e.receive(e.prompt(id, "/help"))
		e.ends(a)
		waits = append(waits, a.at.Sub(start))
	}
	turns := slices.Clone(waits[:0:0])
	for _, id := range ids[busy : busy+probes] {
		start := time.Now()
		a := e.receive(e.prompt(id, "echo hello"))
		e.ends(a)
		turns = append(turns, a.at.Sub(start))
	}
	for _, p := range pending {
		e.ends(e.receive(p))
	}
	slices.Sort(waits)
	slices.Sort(turns)
	t.Logf("beside %d busy ones: an answer without a model after %v (the slowest: %v), a turn with a command after %v (%v)",
		busy, waits[probes/2], waits[probes-1], turns[probes/2], turns[probes-1])
	t.Logf("afterwards: %d bytes for each session", (e.home.memory()-before)/sessions)
}

// TestReplayOfALongSession loads sessions of 5,000 events and of ten times as many: the memory does not tell which.
func TestReplayOfALongSession(t *testing.T) {
	home := newHome(t)
	var peaks []int
	for _, events := range []int{5000, 50_000} {
		id := fmt.Sprintf("long-%d", events)
		writeLog(t, home, id, events)
		e := startEditor(t, home)
		before := home.memory()
		peak, stop := watchMemory(home)
		e.updates = 0
		start := time.Now()
		a := e.ask("session/load", map[string]any{"sessionId": id, "cwd": home.work, "mcpServers": []any{}})
		took := a.at.Sub(start)
		stop()
		peaks = append(peaks, *peak-before)
		e.mu.Lock()
		updates := e.updates
		e.mu.Unlock()
		t.Logf("%d events: %d updates in %v, %.0f a second; memory grew by %d KiB", events, updates, took.Round(time.Millisecond),
			float64(updates)/took.Seconds(), (*peak-before)>>10)
		if want := events / 10 * 6; updates < want {
			t.Errorf("%d updates, want %d", updates, want)
		}
		e.stop()
	}
	if slices.Max(peaks) > 64<<20 {
		t.Errorf("the memory grew by %d bytes", peaks)
	}
}

// writeLog stores a session of turns with one command each.
func writeLog(t *testing.T, home home, id string, events int) {
	t.Helper()
	var log bytes.Buffer
	seq := 0
	add := func(data agents.Data) {
		seq++
		line, err := agents.Encode(agents.Event{Seq: uint64(seq), Time: time.Now(), Data: data})
		if err != nil {
			t.Fatal(err)
		}
		log.Write(line)
		log.WriteByte('\n')
	}
	add(&agents.SessionCreated{Format: agents.Format, SessionID: id, Cwd: home.work})
	zero := 0
	for seq < events {
		call := fmt.Sprintf("call-%d", seq)
		arguments := `{"command":"echo one","description":"Print a word"}`
		for _, data := range []agents.Data{
			&agents.TurnStart{}, &agents.UserMessage{PromptID: call, Content: []agents.ContentBlock{{Type: agents.BlockText, Text: "run it"}}},
			&agents.StepStart{},
			&agents.AssistantMessage{Text: "I'll run it.", ToolCalls: []agents.ToolRequest{{CallID: call, Name: "bash", Arguments: arguments}}},
			&agents.ToolCall{CallID: call, Name: "bash", Arguments: arguments, Presentation: agents.Presentation{
				Title: "Print a word — echo one", Kind: "execute", RawInput: json.RawMessage(`"echo one"`), Terminal: &agents.Terminal{Cwd: home.work},
			}},
			&agents.ToolStart{CallID: call}, &agents.ToolOutput{CallID: call, Text: "one\n"},
			&agents.ToolResult{CallID: call, Content: []agents.Content{{Type: "text", Text: "one"}}, Exit: &agents.Exit{Code: &zero}},
			&agents.StepEnd{}, &agents.TurnEnd{Reason: agents.ReasonCompleted},
		} {
			add(data)
		}
	}
	dir := filepath.Join(home.dir, "state", "dsh", "sessions")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, id+".jsonl"), log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// watchMemory finds the most memory until it is stopped.
func watchMemory(home home) (peak *int, stop func()) {
	peak = new(int)
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			*peak = max(*peak, home.memory())
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	return peak, func() {
		close(over)
		watching.Wait()
	}
}
