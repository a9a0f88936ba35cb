// Package cases drives the real dsh as an editor does, with a model that makes the calls a test says: what went wrong in other
// agents' shells, seen where a user meets it.
package cases

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api"
)

// program is dsh, built once, where every user can read it.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(api.Handshake.MagicCookieKey) != "" { // this test program, started by dsh
		sdk.Serve(talker())
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "dsh-cases") // an ordinary user must be able to enter
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "dsh")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/dsh-go/dsh/cmd/dsh").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build dsh: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// seeSources looks at what dsh is built of: go test takes an earlier result for this one while the files that a test saw are the
// same, and sees what the tests see but not what TestMain does.
var seeSources = sync.OnceValue(func() error {
	for _, root := range []string{"cmd", "host", "plugins", "sdk", "configs"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
})

// credential is in the host's environment, under a name that says what it is.
const credential = "sk-this-must-stay-with-the-host"

// configuration is what a run of dsh finds.
type configuration struct {
	bash string   // the config of the row bash, in one line of YAML
	rows string   // further rows
	env  []string // added to the environment
	bare bool     // nothing else is in it
}

// home is where runs of dsh live.
type home struct {
	t     *testing.T
	model *model
	dir   string
	file  string   // the configuration
	line  []string // what starts dsh
	env   []string
	attr  *syscall.SysProcAttr
}

func newHome(t *testing.T, c configuration) *home {
	t.Helper()
	if err := seeSources(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "dsh-home") // the same, and short: sockets are made below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &home{t: t, model: startModel(t), dir: dir, file: filepath.Join(dir, "dsh.yaml"), attr: &syscall.SysProcAttr{}}
	h.line = []string{program, "run", "-c", h.file}
	if c.bash == "" {
		c.bash = "{}"
	}
	text := fmt.Sprintf(`plugins:
  - {id: bash, plugin: bash-local, config: %s}
  - {id: tool-bash, plugin: tool-bash}
  - {id: llm, plugin: llm-openai, config: {baseURL: %s, model: scripted, apiKey: "${LLM_API_KEY}"}}
  - {id: agent, plugin: agent}
  - {id: acp, plugin: acp}
`, c.bash, h.model.url) + c.rows
	if err := os.WriteFile(h.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h.env = []string{"PATH=" + os.Getenv("PATH"), "LLM_API_KEY=" + credential, "XDG_STATE_HOME=" + dir + "/state"}
	if !c.bare {
		h.env = append(h.env, "HOME="+dir, "LANG="+os.Getenv("LANG"), "TMPDIR="+dir)
	}
	h.env = append(h.env, c.env...)
	return h
}

// work makes a directory for a session.
func (h *home) work() string {
	h.t.Helper()
	dir, err := os.MkdirTemp(h.dir, "work")
	if err != nil {
		h.t.Fatal(err)
	}
	return dir
}

// editor is a client of one dsh run.
type editor struct {
	h     *home
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   *logBuffer
	ended chan struct{} // closed when dsh's stdout has ended

	mu      sync.Mutex
	number  int
	waiting map[int]chan answer
	frames  []frame // what dsh has said, in order
}

// frame is a message of dsh: an answer, or an update.
type frame struct {
	ID     *int
	Method string
	Params struct {
		SessionID string
		Update    update
	}
	answer
}

// update is what a session/update tells of.
type update struct {
	SessionUpdate string
	Content       json.RawMessage
	ToolCallID    string
	Status        string
}

// text is what a chunk of a message says, or a card shows.
func (u update) text() string {
	type content struct{ Text string }
	var chunk content
	var card []struct{ Content content }
	if json.Unmarshal(u.Content, &chunk) != nil && json.Unmarshal(u.Content, &card) == nil && len(card) > 0 {
		chunk = card[0].Content
	}
	return chunk.Text
}

type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int
		Message string
	} `json:"error"`
}

// start starts dsh run and greets it.
func (h *home) start() *editor {
	h.t.Helper()
	e := &editor{h: h, cmd: exec.Command(h.line[0], h.line[1:]...), log: &logBuffer{}, ended: make(chan struct{}), waiting: map[int]chan answer{}}
	e.cmd.Env, e.cmd.Dir, e.cmd.Stderr, e.cmd.SysProcAttr = h.env, h.dir, e.log, h.attr
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		h.t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(e.stop)
	go e.read(stdout)
	e.call("initialize", map[string]any{"protocolVersion": 1})
	return e
}

// read deals with what dsh says: every line is a frame, and every answer is that of a request which has none yet.
func (e *editor) read(stdout io.Reader) {
	defer close(e.ended)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var f frame
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil || f.Method == "" && f.ID == nil {
			e.h.t.Errorf("not a frame: %.200q, %v", lines.Bytes(), err)
			continue
		}
		e.mu.Lock()
		e.frames = append(e.frames, f)
		if f.Method == "" {
			if waiting, ok := e.waiting[*f.ID]; ok {
				waiting <- f.answer
			} else {
				e.h.t.Errorf("nothing waits for this answer: %.200s", lines.Bytes())
			}
			delete(e.waiting, *f.ID)
		}
		e.mu.Unlock()
	}
}

// since are the frames that dsh has sent after the first n.
func (e *editor) since(n int) []frame {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.frames[n:])
}

// send sends a request and returns where its answer will be.
func (e *editor) send(method string, params any) <-chan answer {
	answers := make(chan answer, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.number++
	e.waiting[e.number] = answers
	frame := map[string]any{"jsonrpc": "2.0", "id": e.number, "method": method, "params": params}
	if _, err := io.WriteString(e.stdin, encode(frame)+"\n"); err != nil {
		e.h.t.Errorf("send %s: %v", method, err)
	}
	return answers
}

// notify sends what gets no answer.
func (e *editor) notify(method string, params any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := io.WriteString(e.stdin, encode(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})+"\n"); err != nil {
		e.h.t.Errorf("send %s: %v", method, err)
	}
}

// await returns the answer of a request that must succeed.
func (e *editor) await(method string, answers <-chan answer) json.RawMessage {
	e.h.t.Helper()
	select {
	case a := <-answers:
		if a.Error != nil {
			e.h.t.Fatalf("%s: %s\n%s", method, a.Error.Message, e.log)
		}
		return a.Result
	case <-e.ended:
		e.h.t.Fatalf("%s: dsh ended\n%s", method, e.log)
	case <-time.After(time.Minute):
		e.h.t.Fatalf("%s: no answer\n%s", method, e.log)
	}
	return nil
}

func (e *editor) call(method string, params any) json.RawMessage {
	e.h.t.Helper()
	return e.await(method, e.send(method, params))
}

// session makes a session in a directory.
func (e *editor) session(cwd string) string {
	e.h.t.Helper()
	var s struct{ SessionID string }
	if err := json.Unmarshal(e.call("session/new", map[string]any{"cwd": cwd, "mcpServers": []any{}}), &s); err != nil {
		e.h.t.Fatal(err)
	}
	return s.SessionID
}

// load loads a stored session.
func (e *editor) load(session, cwd string) {
	e.h.t.Helper()
	e.call("session/load", map[string]any{"sessionId": session, "cwd": cwd, "mcpServers": []any{}})
}

// prompt has the model make calls in a session and returns what they gave, as the model read it.
func (e *editor) prompt(session string, calls ...call) []string {
	e.h.t.Helper()
	results, wait := e.begin(session, calls...)
	wait()
	return results()
}

// begin is prompt without waiting.
func (e *editor) begin(session string, calls ...call) (results func() []string, wait func()) {
	script := e.h.model.add(calls)
	answers := e.ask(session, script)
	return func() []string { return e.h.model.results(script) }, func() {
		e.h.t.Helper()
		e.await("session/prompt", answers)
	}
}

// ask prompts with a script and returns where the answer will be.
func (e *editor) ask(session, script string) <-chan answer {
	return e.send("session/prompt", map[string]any{
		"sessionId": session, "prompt": []any{map[string]any{"type": "text", "text": script}},
	})
}

// stopReason waits for the answer of a prompt.
func (e *editor) stopReason(answers <-chan answer) string {
	e.h.t.Helper()
	var result struct{ StopReason string }
	if err := json.Unmarshal(e.await("session/prompt", answers), &result); err != nil {
		e.h.t.Fatal(err)
	}
	return result.StopReason
}

// stop ends dsh as an editor that is closed, once.
func (e *editor) stop() {
	e.stdin.Close()
	limit := time.AfterFunc(20*time.Second, func() { _ = e.cmd.Process.Kill() })
	defer limit.Stop()
	<-e.ended
	_ = e.cmd.Wait()
}

// reload replaces the instance of a row.
func (e *editor) reload(row string) {
	e.h.t.Helper()
	if out, err := e.tryReload(row); err != nil {
		e.h.t.Fatalf("%v: %s", err, out)
	}
}

// tryReload is reload that may fail, and then returns why.
func (e *editor) tryReload(row string) (out []byte, err error) {
	cmd := exec.Command(program, "reload", row)
	cmd.Env = e.h.env
	return cmd.CombinedOutput()
}

// plugin is the process of a built-in plugin of this dsh.
func (e *editor) plugin(name string) int {
	e.h.t.Helper()
	pid, ok := e.find(name)
	if !ok {
		e.h.t.Fatalf("no process serves %s", name)
	}
	return pid
}

func (e *editor) find(name string) (pid int, ok bool) {
	for _, pid := range childrenOf(e.cmd.Process.Pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasSuffix(string(line), "\x00"+name+"\x00") {
			return pid, true
		}
	}
	return 0, false
}

func childrenOf(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		list, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(list)) {
			child, _ := strconv.Atoi(field)
			pids = append(pids, child)
		}
	}
	return pids
}

// logBuffer takes dsh's log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// eventually waits for what other processes bring about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not: %s", what)
		}
	}
}

// gate is a command that tells when it runs, and then waits to be let through.
const gate = "touch running; until [ -e open ]; do sleep .05; done"

// atGate waits until a gate in a directory is reached.
func atGate(t *testing.T, cwd string) {
	t.Helper()
	eventually(t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(cwd, "running"))
		return err == nil
	})
}

func openGate(t *testing.T, cwd string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cwd, "open"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// expect compares what calls gave.
func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %.600q, want %q", got, want)
	}
}
