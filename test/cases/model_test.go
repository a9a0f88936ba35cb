package cases

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// call is a tool call that the model makes.
type call struct {
	tool      string
	arguments string // JSON, or what a model takes for it
}

// run is a call of bash, with further arguments in pairs.
func run(command string, more ...any) call {
	arguments := map[string]any{"command": command, "description": "Run what the test says"}
	for i := 0; i < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	return call{"bash", encode(arguments)}
}

func background(command string) call { return run(command, "run_in_background", true) }

func output(id string) call { return call{"bash_output", encode(map[string]any{"task_id": id})} }

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// model is an endpoint of OpenAI's chat completions. It has no memory: the user's last message names a script, and of that it makes
// as many calls as have been answered, then says "done".
type model struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	scripts  map[string][]call
	says     map[string][]string  // pieces that are streamed before the first call
	requests map[string][]request // of each script, in order
}

type request struct {
	Messages []message `json:"messages"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Calls   []struct {
		ID       string                           `json:"id"`
		Function struct{ Name, Arguments string } `json:"function"`
	} `json:"tool_calls"`
	CallID string `json:"tool_call_id"` // of a tool: what it answers
}

// disorder is why an endpoint refuses messages in this order; empty: it takes them. Each call is answered once, in the order of the
// calls, before anything else is said; the model speaks when it is spoken to.
func (r request) disorder() string {
	var open []string // calls without an answer
	before := ""
	for i, msg := range r.Messages {
		switch {
		case msg.Role == "tool" && (len(open) == 0 || open[0] != msg.CallID):
			return fmt.Sprintf("message %d answers %q, unanswered are %q", i, msg.CallID, open)
		case msg.Role == "tool":
			open = open[1:]
		case len(open) > 0:
			return fmt.Sprintf("message %d is the %s's, and %q are unanswered", i, msg.Role, open)
		case msg.Role == "system" && i > 0, msg.Role == "assistant" && before != "user" && before != "tool":
			return fmt.Sprintf("message %d is the %s's after the %s's", i, msg.Role, before)
		}
		for _, c := range msg.Calls {
			open = append(open, c.ID)
		}
		before = msg.Role
	}
	if before != "user" && before != "tool" || len(open) > 0 {
		return fmt.Sprintf("the last message is the %s's, and %q are unanswered", before, open)
	}
	return ""
}

func startModel(t *testing.T) *model {
	m := &model{t: t, scripts: map[string][]call{}, says: map[string][]string{}, requests: map[string][]request{}}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// add stores a script and returns the message that names it. Before the first call the model says some pieces.
func (m *model) add(calls []call, says ...string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := fmt.Sprint("script ", len(m.scripts))
	m.scripts[name], m.says[name] = calls, says
	return name
}

// script finds the script that a request is at, and how many of its calls have been answered.
func (r request) script() (name string, answered int) {
	for _, msg := range r.Messages {
		switch {
		case msg.Role == "user" && strings.HasPrefix(msg.Content, "script "):
			name, answered = msg.Content, 0
		case msg.Role == "tool":
			answered++
		}
	}
	return name, answered
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a turn was cancelled while its request was sent
	}
	var req request
	if err = json.Unmarshal(body, &req); err != nil || !utf8.Valid(body) || strings.ContainsRune(string(body), utf8.RuneError) {
		m.t.Errorf("a strict endpoint refuses this request: %v: %.300q", err, body)
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if why := req.disorder(); why != "" {
		m.t.Errorf("a strict endpoint refuses this request: %s: %.2000q", why, body)
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	name, answered := req.script()
	m.mu.Lock()
	calls, known := m.scripts[name]
	says := m.says[name]
	m.requests[name] = append(m.requests[name], req)
	m.mu.Unlock()
	if !known {
		http.Error(w, "no script "+name, http.StatusBadRequest)
		return
	}
	delta, reason := map[string]any{"role": "assistant", "content": "done"}, "stop"
	if answered < len(calls) {
		c := calls[answered]
		delta, reason = map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{
			"index": 0, "id": fmt.Sprint("call-", len(req.Messages)), "type": "function",
			"function": map[string]any{"name": c.tool, "arguments": c.arguments},
		}}}, "tool_calls"
	}
	var choices []map[string]any
	if answered == 0 {
		for _, piece := range says {
			choices = append(choices, map[string]any{"index": 0, "delta": map[string]any{"content": piece}})
		}
	}
	choices = append(choices, map[string]any{"index": 0, "delta": delta}, map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": reason})
	w.Header().Set("Content-Type", "text/event-stream")
	for _, choice := range choices {
		fmt.Fprintf(w, "data: %s\n\n", encode(map[string]any{"object": "chat.completion.chunk", "choices": []any{choice}}))
		_ = http.NewResponseController(w).Flush() // the pieces come one by one
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// last is the script's last request.
func (m *model) last(script string) request {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.requests[script]; len(all) > 0 {
		return all[len(all)-1]
	}
	return request{}
}

// results are what the calls of a script gave, as the model reads it.
func (m *model) results(script string) (results []string) {
	for _, msg := range m.last(script).Messages {
		switch {
		case msg.Role == "user" && msg.Content == script:
			results = nil
		case msg.Role == "tool":
			results = append(results, msg.Content)
		}
	}
	return results
}
