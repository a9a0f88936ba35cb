// Package bench measures dsh as its users meet it, each number beside its floor from the same run:
//
//	go test -bench . -run '^$' ./test/bench
package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

// dsh is the program under test.
var dsh string

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve-plugin" {
		sdk.Serve(benchPlugins[os.Args[2]]())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dsh-bench")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	dsh = filepath.Join(dir, "dsh")
	build := exec.Command("go", "build", "-o", dsh, "../../cmd/dsh")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build dsh: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// times are what single operations took.
type times []time.Duration

// report gives the middle and the 99th percentile of what was measured.
func (d times) report(b *testing.B) {
	slices.Sort(d)
	at := func(percent int) float64 {
		return float64(d[min(len(d)-1, len(d)*percent/100)].Microseconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(at(50), "p50-µs")
	b.ReportMetric(at(99), "p99-µs")
}

// measure runs an operation b.N times.
func measure(b *testing.B, operation func()) {
	b.Helper()
	d := make(times, 0, b.N)
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		operation()
		d = append(d, time.Since(start))
	}
	b.StopTimer()
	d.report(b)
}

// startHost runs a configuration whose built-ins are those of the program under test, or of this program.
func startHost(b *testing.B, program, yaml string) grpc.ClientConnInterface {
	b.Helper()
	c, err := config.Parse("bench.yaml", []byte(yaml), os.LookupEnv)
	if err != nil {
		b.Fatal(err)
	}
	return start(b, host.Options{Config: c, Builtin: func(name string) ([]string, bool) { return []string{program, "serve-plugin", name}, true }})
}

// start starts a host, which the end of the benchmark stops.
func start(b *testing.B, o host.Options) grpc.ClientConnInterface {
	b.Helper()
	o.Env, o.Log = os.Environ(), hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	h, err := host.Start(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		h.Stop()
		<-h.Done()
	})
	<-h.Settled()
	conn, closeConn, err := h.Dial()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(closeConn)
	return conn
}

// BenchmarkUnaryCall is one small call from a plugin process to another: through the host, and on a socket of their own.
func BenchmarkUnaryCall(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(b.TempDir(), "direct")
	conn := startHost(b, self, fmt.Sprintf("plugins:\n- {id: provider, plugin: provider, config: {direct: %q}}\n- {id: caller, plugin: caller, config: {direct: %q}}\n", socket, socket))
	for _, way := range []string{"floor-direct", "routed"} {
		b.Run(way, func(b *testing.B) {
			arguments, _ := json.Marshal(map[string]any{"way": way, "calls": b.N})
			result, err := tool.NewClient(conn).Execute(b.Context(), &toolsv1.Call{Name: "measure", Arguments: string(arguments)}, tool.Watch{})
			if err != nil || result.GetIsError() {
				b.Fatalf("%v %v", result, err)
			}
			var d times
			if err := json.Unmarshal([]byte(result.GetContent()[0].GetText()), &d); err != nil {
				b.Fatal(err)
			}
			d.report(b)
		})
	}
}

// BenchmarkTrue is the command `true` through the whole tool pipeline, and spawned bare.
func BenchmarkTrue(b *testing.B) {
	b.Run("floor-spawn", func(b *testing.B) {
		measure(b, func() { spawn(b, "true") })
	})
	b.Run("tool", func(b *testing.B) {
		client := tool.NewClient(startHost(b, dsh, "plugins:\n- {id: bash, plugin: bash-local}\n- {id: tool-bash, plugin: tool-bash}\n"))
		call := &toolsv1.Call{Name: "bash", Arguments: `{"command":"true","description":"Do nothing"}`, SessionCwd: b.TempDir()}
		measure(b, func() {
			if result, err := client.Execute(b.Context(), call, tool.Watch{}); err != nil || result.GetIsError() {
				b.Fatalf("%v %v", result, err)
			}
		})
	})
}

// BenchmarkTrueBy32 is BenchmarkTrue by 32 callers at once.
func BenchmarkTrueBy32(b *testing.B) {
	by32 := func(b *testing.B, operation func()) {
		work := make(chan struct{})
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				for range work {
					operation()
				}
			})
		}
		b.ResetTimer()
		for range b.N {
			work <- struct{}{}
		}
		close(work)
		callers.Wait()
		b.StopTimer()
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	}
	b.Run("floor-spawn", func(b *testing.B) { by32(b, func() { spawn(b, "true") }) })
	b.Run("tool", func(b *testing.B) {
		client := tool.NewClient(startHost(b, dsh, "plugins:\n- {id: bash, plugin: bash-local}\n- {id: tool-bash, plugin: tool-bash}\n"))
		call := &toolsv1.Call{Name: "bash", Arguments: `{"command":"true","description":"Do nothing"}`, SessionCwd: b.TempDir()}
		by32(b, func() {
			if result, err := client.Execute(b.Context(), call, tool.Watch{}); err != nil || result.GetIsError() {
				b.Errorf("%v %v", result, err)
			}
		})
	})
}

// spawn runs a command with two pipes in a session of its own, as an executor must.
func spawn(b *testing.B, command string) {
	cmd := exec.Command("bash", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stdout)
	_, _ = io.Copy(io.Discard, stderr)
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// editor drives dsh run as an editor does.
type editor struct {
	b      *testing.B
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	state  string // where the sessions are
	lastID int
}

func startEditor(b *testing.B, args ...string) *editor {
	b.Helper()
	e := &editor{b: b, cmd: exec.Command(dsh, append([]string{"run"}, args...)...), state: b.TempDir()}
	e.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+e.state)
	e.cmd.Stderr = io.Discard // the log of the host
	var err error
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	e.stdout = bufio.NewReaderSize(stdout, 1<<20)
	if err := e.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return e
}

func (e *editor) stop() {
	e.stdin.Close()
	_, _ = io.Copy(io.Discard, e.stdout)
	if err := e.cmd.Wait(); err != nil {
		e.b.Error(err)
	}
}

// request sends a request and reads up to its answer.
func (e *editor) request(method, params string) (answer string) {
	e.lastID++
	fmt.Fprintf(e.stdin, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", e.lastID, method, params)
	want := fmt.Sprintf(`"id":%d,`, e.lastID)
	for {
		line, err := e.stdout.ReadString('\n')
		if err != nil {
			e.b.Fatal(err)
		}
		if strings.Contains(line, want) && !strings.Contains(line, `"method"`) {
			return line
		}
	}
}

const initialize = `{"protocolVersion":1,"clientCapabilities":{"_meta":{"terminal_output":true}}}`

func (e *editor) newSession(dir string) (id string) {
	answer := e.request("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, dir))
	_, rest, _ := strings.Cut(answer, `"sessionId":"`)
	id, _, _ = strings.Cut(rest, `"`)
	return id
}

// BenchmarkInitialize is the time from the start of the process to the answer of `initialize`, and that of the process alone.
func BenchmarkInitialize(b *testing.B) {
	b.Run("floor-process", func(b *testing.B) {
		measure(b, func() {
			if err := exec.Command(dsh, "version").Run(); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("initialize", func(b *testing.B) {
		d := make(times, 0, b.N)
		for range b.N {
			start := time.Now()
			e := startEditor(b)
			e.request("initialize", initialize)
			d = append(d, time.Since(start))
			e.stop()
		}
		d.report(b)
	})
}

const prompt = `{"sessionId":%q,"prompt":[{"type":"text","text":"true"}]}`

// BenchmarkPrompt is a prompt that becomes one `true` call and an answer, over stdio: in a new session each time, and in one session.
func BenchmarkPrompt(b *testing.B) {
	b.Run("floor-spawn", func(b *testing.B) {
		measure(b, func() { spawn(b, "true") })
	})
	b.Run("new-session", func(b *testing.B) {
		e := startEditor(b)
		defer e.stop()
		e.request("initialize", initialize)
		d, dir := make(times, 0, b.N), b.TempDir()
		for range b.N {
			params := fmt.Sprintf(prompt, e.newSession(dir))
			start := time.Now()
			e.request("session/prompt", params)
			d = append(d, time.Since(start))
		}
		d.report(b)
	})
	b.Run("one-session", func(b *testing.B) {
		e := startEditor(b)
		defer e.stop()
		e.request("initialize", initialize)
		params := fmt.Sprintf(prompt, e.newSession(b.TempDir()))
		measure(b, func() { e.request("session/prompt", params) })
	})
}
