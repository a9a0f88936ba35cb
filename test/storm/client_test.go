package storm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// frame is a JSON-RPC message as far as this client looks into it.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		Update    update `json:"update"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

type update struct {
	Kind    string          `json:"sessionUpdate"`
	CallID  string          `json:"toolCallId"`
	Title   string          `json:"title"`
	Status  string          `json:"status"`
	Content json.RawMessage `json:"content"`
	Meta    struct {
		Output *struct {
			Data string `json:"data"`
		} `json:"terminal_output"`
		Exit *struct {
			Code   *int    `json:"exit_code"`
			Signal *string `json:"signal"`
		} `json:"terminal_exit"`
	} `json:"_meta"`
}

// client drives one dsh over stdin and stdout. mu guards what it knows of answers and sessions; one goroutine reads.
type client struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	read   sync.WaitGroup
	stderr *os.File

	mu       sync.Mutex
	lastID   int
	waiting  map[string]chan frame
	sessions map[string]*session
	broken   []string
}

// session collects the updates of the turn that runs.
type session struct {
	id      string
	updates []update
	inTurn  bool
}

func start(t testing.TB, stderr *os.File, env []string, program string, args ...string) *client {
	t.Helper()
	c := &client{t: t, cmd: exec.Command(program, args...), waiting: map[string]chan frame{}, sessions: map[string]*session{}, stderr: stderr}
	c.cmd.Env = env
	c.cmd.Stderr = stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.read.Go(func() { c.receive(bufio.NewReaderSize(stdout, 1<<20)) })
	c.request("initialize", `{"protocolVersion":1,"clientCapabilities":{"_meta":{"terminal_output":true}}}`)
	return c
}

func (c *client) receive(r *bufio.Reader) {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var f frame
		if err := json.Unmarshal(line, &f); err != nil {
			c.complain("a line that is no frame: %.200s", line)
			continue
		}
		c.mu.Lock()
		if f.Method == "" {
			answer := c.waiting[string(f.ID)]
			delete(c.waiting, string(f.ID))
			c.mu.Unlock()
			if answer == nil {
				c.complain("an answer to nothing: %.200s", line)
				continue
			}
			answer <- f
			continue
		}
		s := c.sessions[f.Params.SessionID]
		switch kind := f.Params.Update.Kind; {
		case kind == "available_commands_update", kind == "session_info_update", kind == "config_option_update", kind == "current_mode_update", kind == "usage_update":
		case s == nil || !s.inTurn:
			c.broken = append(c.broken, fmt.Sprintf("an update outside of a turn: %.200s", line))
		default:
			s.updates = append(s.updates, f.Params.Update)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, answer := range c.waiting {
		delete(c.waiting, id)
		close(answer)
	}
}

func (c *client) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

// send sends a request and returns where its answer will come.
func (c *client) send(method, params string) <-chan frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	answer := make(chan frame, 1)
	c.waiting[fmt.Sprint(c.lastID)] = answer
	fmt.Fprintf(c.stdin, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.lastID, method, params)
	return answer
}

func (c *client) request(method, params string) frame {
	f, ok := <-c.send(method, params)
	if !ok {
		c.t.Fatalf("the connection ended before %s was answered", method)
	}
	return f
}

func (c *client) notify(method, params string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.stdin, `{"jsonrpc":"2.0","method":%q,"params":%s}`+"\n", method, params)
}

func (c *client) newSession(cwd string) *session {
	f := c.request("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, cwd))
	var result struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(f.Result, &result); err != nil || f.Error != nil {
		c.t.Fatalf("session/new: %+v, %v", f.Error, err)
	}
	s := &session{id: result.SessionID}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[s.id] = s
	return s
}

// turn is what came of a prompt.
type turn struct {
	stop    string
	failure string
	output  string // of the last terminal
	content string // of the last card
	status  string // of the last card
	cards   int
	answer  string // the agent's messages
	exits   int
}

// prompt sends a prompt and returns where its turn will be when it is over.
func (c *client) prompt(s *session, text string) func() turn {
	c.mu.Lock()
	s.updates, s.inTurn = nil, true
	c.mu.Unlock()
	encoded, _ := json.Marshal(text)
	answer := c.send("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}`, s.id, encoded))
	return func() turn {
		f, ok := <-answer
		c.mu.Lock()
		defer c.mu.Unlock()
		s.inTurn = false
		if !ok {
			return turn{failure: "the connection ended"}
		}
		return summarize(f, s.updates)
	}
}

func summarize(f frame, updates []update) turn {
	var t turn
	if f.Error != nil {
		t.failure = f.Error.Message
	}
	var result struct {
		StopReason string `json:"stopReason"`
	}
	_ = json.Unmarshal(f.Result, &result)
	t.stop = result.StopReason
	for _, u := range updates {
		switch u.Kind {
		case "tool_call":
			t.cards++
			t.output, t.content, t.status = "", "", u.Status
		case "tool_call_update":
			if u.Status != "" {
				t.status = u.Status
			}
			if u.Meta.Output != nil {
				t.output += u.Meta.Output.Data
			}
			if u.Meta.Exit != nil {
				t.exits++
			}
			t.content += contentText(u.Content)
		case "agent_message_chunk":
			t.answer += contentText(u.Content)
		}
	}
	return t
}

// contentText finds the texts in a content block or in a list of card contents.
func contentText(raw json.RawMessage) string {
	var block struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &block) == nil {
		return block.Text
	}
	var list []struct {
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	_ = json.Unmarshal(raw, &list)
	var all strings.Builder
	for _, item := range list {
		all.WriteString(item.Content.Text)
	}
	return all.String()
}

// stop ends the input and waits for the end of the process.
func (c *client) stop() {
	c.stdin.Close()
	c.read.Wait()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("dsh ended with %v", err)
	}
	for _, b := range c.broken {
		c.t.Error(b)
	}
}
