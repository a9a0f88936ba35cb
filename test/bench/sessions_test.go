package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startModel serves chat completions: a user's message becomes a call of `true`, its result a word.
func startModel(b *testing.B) (url string) {
	call := `{"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c%d","type":"function","function":` +
		`{"name":"bash","arguments":"{\"command\":\"true\",\"description\":\"Do nothing\"}"}}]}}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Messages []struct {
				Role string `json:"role"`
			} `json:"messages"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		piece, reason := `{"choices":[{"index":0,"delta":{"role":"assistant","content":"done"}}]}`, "stop"
		if n := len(request.Messages); request.Messages[n-1].Role == "user" {
			piece, reason = fmt.Sprintf(call, n), "tool_calls"
		}
		fmt.Fprintf(w, "data: %s\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\ndata: [DONE]\n\n", piece, reason)
	}))
	b.Cleanup(server.Close)
	return server.URL
}

// shipped is the configuration as it is shipped, with a model over HTTP.
func shipped(b *testing.B) (args []string) {
	file := filepath.Join(b.TempDir(), "dsh.yaml")
	text := fmt.Sprintf(`plugins:
  - {id: bash, plugin: bash-local}
  - {id: tool-bash, plugin: tool-bash}
  - {id: permissions, plugin: permissions, config: {mode: auto}}
  - {id: llm, plugin: llm-openai, config: {baseURL: %s, model: scripted}}
  - {id: agent, plugin: agent}
  - {id: acp, plugin: acp}
`, startModel(b))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return []string{"-c", file}
}

// BenchmarkPromptOf300 are 300 prompts of one session: first-µs and last-µs are the medians of the first and of the last fifty. Scripted is
// the offline model, shipped one over HTTP and a hook.
func BenchmarkPromptOf300(b *testing.B) {
	b.Run("floor-spawn", func(b *testing.B) {
		measure(b, func() { spawn(b, "true") })
	})
	for name, args := range map[string]func(*testing.B) []string{"scripted": func(*testing.B) []string { return nil }, "shipped": shipped} {
		b.Run(name, func(b *testing.B) {
			e := startEditor(b, args(b)...)
			defer e.stop()
			e.request("initialize", initialize)
			var all, first, last times
			for range b.N {
				params := fmt.Sprintf(prompt, e.newSession(b.TempDir()))
				var d times
				for range 300 {
					start := time.Now()
					e.request("session/prompt", params)
					d = append(d, time.Since(start))
				}
				all, first, last = append(all, d...), append(first, d[:50]...), append(last, d[250:]...)
			}
			all.report(b)
			b.ReportMetric(first.median(), "first-µs")
			b.ReportMetric(last.median(), "last-µs")
		})
	}
}

func (d times) median() float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds())
}

// Benchmark32Sessions are prompts by 32 sessions at once; MiB is the proportional memory of all processes meanwhile.
func Benchmark32Sessions(b *testing.B) {
	const many, prompts = 32, 640
	for name, args := range map[string]func(*testing.B) []string{"scripted": func(*testing.B) []string { return nil }, "shipped": shipped} {
		b.Run(name, func(b *testing.B) {
			e := startEditor(b, args(b)...)
			defer e.stop()
			e.request("initialize", initialize)
			ids := make([]string, many)
			for i := range ids {
				ids[i] = e.newSession(b.TempDir())
			}
			var memory float64
			b.ResetTimer()
			for range b.N {
				e.flood(ids, prompts/2)
				b.StopTimer()
				memory = max(memory, familyPSS(b, e.cmd.Process.Pid))
				b.StartTimer()
				e.flood(ids, prompts/2)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.N*prompts)/b.Elapsed().Seconds(), "prompts/s")
			b.ReportMetric(memory, "MiB")
		})
	}
}

// flood sends so many prompts, one at a time from each session, and waits for their answers.
func (e *editor) flood(ids []string, prompts int) {
	left := prompts
	send := func(session int) {
		left--
		fmt.Fprintf(e.stdin, `{"jsonrpc":"2.0","id":"s%d","method":"session/prompt","params":`+prompt+"}\n", session, ids[session])
	}
	for i := range min(len(ids), prompts) {
		send(i)
	}
	for answers := 0; answers < prompts; {
		line, err := e.stdout.ReadString('\n')
		if err != nil {
			e.b.Fatal(err)
		}
		_, rest, isAnswer := strings.Cut(line, `"id":"s`)
		if !isAnswer || strings.Contains(line, `"method"`) {
			continue
		}
		answers++
		number, _, _ := strings.Cut(rest, `"`)
		if !strings.Contains(line, `"end_turn"`) {
			e.b.Fatal(line)
		}
		if session, err := strconv.Atoi(number); err == nil && left > 0 {
			send(session)
		}
	}
}

// familyPSS is the memory of a process and all that descend from it, in MiB.
func familyPSS(b *testing.B, pid int) float64 {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Logf("no memory is known: %v", err)
		return 0
	}
	_, rest, _ := strings.Cut(string(rollup), "\nPss:")
	kB, _ := strconv.Atoi(strings.Fields(rest)[0])
	total := float64(kB) / 1024
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range children {
		list, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				total += familyPSS(b, child)
			}
		}
	}
	return total
}

// BenchmarkReplay loads a session of 5,000 events again and again: MiB is by how much all processes grew.
func BenchmarkReplay(b *testing.B) {
	e := startEditor(b)
	defer e.stop()
	e.request("initialize", initialize)
	dir := b.TempDir()
	id := e.newSession(dir)
	state, _ := filepath.Glob(filepath.Join(e.state, "dsh", "sessions", "*.jsonl"))
	log, err := os.ReadFile(state[0])
	if err != nil {
		b.Fatal(err)
	}
	e.request("session/close", fmt.Sprintf(`{"sessionId":%q}`, id))
	events := strings.Count(string(log), "\n")
	var text strings.Builder
	text.Write(log)
	updates := 0
	for turn := 0; events < 5000; turn++ {
		for _, event := range []string{
			`"type":"turn/start"`,
			fmt.Sprintf(`"type":"user/message","prompt_id":"p%d","content":[{"type":"text","text":"go on"}]`, turn),
			`"type":"step/start"`,
			`"type":"assistant/chunk","text":"working "`, `"type":"assistant/chunk","text":"on it "`, `"type":"assistant/chunk","text":"still"`,
			`"type":"assistant/message","text":"working on it still"`,
			`"type":"step/end"`, `"type":"turn/end","reason":"completed"`,
		} {
			events++
			fmt.Fprintf(&text, `{"seq":%d,"time":"2026-11-30T10:00:00Z",%s}`+"\n", events, event)
		}
	}
	if err := os.WriteFile(state[0], []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	before := familyPSS(b, e.cmd.Process.Pid)
	b.ResetTimer()
	for range b.N {
		e.lastID++
		fmt.Fprintf(e.stdin, `{"jsonrpc":"2.0","id":%d,"method":"session/load","params":{"sessionId":%q,"cwd":%q,"mcpServers":[]}}`+"\n", e.lastID, id, dir)
		for answer := fmt.Sprintf(`"id":%d,`, e.lastID); ; updates++ {
			line, err := e.stdout.ReadString('\n')
			if err != nil {
				b.Fatal(err)
			}
			if strings.Contains(line, answer) {
				if strings.Contains(line, `"error"`) {
					b.Fatal(line)
				}
				break
			}
		}
		b.StopTimer()
		e.request("session/close", fmt.Sprintf(`{"sessionId":%q}`, id))
		b.StartTimer()
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(updates)/b.Elapsed().Seconds(), "updates/s")
	b.ReportMetric(float64(updates)/float64(b.N), "updates")
	b.ReportMetric(familyPSS(b, e.cmd.Process.Pid)-before, "MiB")
}
