package llmopenai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/dsh-go/dsh/sdk/api/llmv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

func TestMain(m *testing.M) {
	// Read once in a process. Local addresses are never reached through a proxy.
	os.Setenv("HTTP_PROXY", "http://proxy.test:3128")
	os.Setenv("NO_PROXY", "inside.test")
	goleak.VerifyTestMain(m)
}

const key = "sk-very-secret-0123456789"

// endpoint is a stand-in for a model's endpoint, reached without a network so that its time is that of the test's bubble.
type endpoint struct {
	handler http.HandlerFunc
	dialErr []error // the errors of the first connections; nil: that one works

	mu       sync.Mutex
	dials    int
	requests []recorded
}

type recorded struct {
	url    string
	header http.Header
	length int64
	body   map[string]any
}

// stream is a handler that sends a stream as it is.
func stream(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
}

// data frames chunks as server-sent events.
func data(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		fmt.Fprintf(&b, "data: %s\n\n", c)
	}
	return b.String()
}

// refuse is a handler that answers with a status.
func refuse(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// inTurn answers the first request with the first handler, and so on.
func inTurn(handlers ...http.HandlerFunc) http.HandlerFunc {
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		n++
		handlers[min(n, len(handlers))-1](w, r)
	}
}

// outcome is what a consumer of the model sees.
type outcome struct {
	events []string
	reason llm.Reason
	err    error
	log    string
}

// generate sends a request to the endpoint, in a bubble of its own.
func (e *endpoint) generate(t *testing.T, change func(*Config), req *llm.Request) outcome {
	t.Helper()
	var o outcome
	synctest.Test(t, func(t *testing.T) { o = e.generateIn(t, t.Context(), change, req, nil) })
	return o
}

func (e *endpoint) generateIn(t *testing.T, ctx context.Context, change func(*Config), req *llm.Request, on func(*llm.Event) error) outcome {
	t.Helper()
	config := defaults
	config.BaseURL, config.APIKey, config.Model = "http://model.test/v1", key, "tiny"
	if change != nil {
		change(&config)
	}
	var log bytes.Buffer
	m, err := newModel(config, hclog.New(&hclog.LoggerOptions{Output: &log, DisableTime: true}))
	if err != nil {
		t.Fatal(err)
	}
	listener := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(e.serve)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	m.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return e.dial(listener) }
	m.transport.Proxy = nil

	if req == nil {
		req = &llm.Request{Messages: []*llm.Message{{Role: llm.User, Text: "hello"}}}
	}
	var o outcome
	o.reason, o.err = m.Generate(ctx, req, func(event *llm.Event) error {
		o.events = append(o.events, line(event))
		if on != nil {
			return on(event)
		}
		return nil
	})
	m.transport.CloseIdleConnections()
	_ = server.Close()
	serving.Wait()
	o.log = log.String()
	for _, secret := range []string{key, "hdr-secret-value"} {
		if strings.Contains(fmt.Sprint(o.err, o.log, o.events), secret) {
			t.Errorf("the secret shows: %v %q\n%s", o.err, o.events, o.log)
		}
	}
	return o
}

func (e *endpoint) dial(l *pipeListener) (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dials++
	if e.dials <= len(e.dialErr) && e.dialErr[e.dials-1] != nil {
		return nil, e.dialErr[e.dials-1]
	}
	client, server := net.Pipe()
	l.conns <- server
	return client, nil
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	got := recorded{url: r.URL.String(), header: r.Header.Clone(), length: r.ContentLength}
	_ = json.NewDecoder(r.Body).Decode(&got.body)
	e.mu.Lock()
	e.requests = append(e.requests, got)
	e.mu.Unlock()
	e.handler(w, r)
}

// line is an event as text.
func line(event *llm.Event) string {
	switch e := event.GetEvent().(type) {
	case *llmv1.GenerateResponse_Text:
		return "text " + e.Text
	case *llmv1.GenerateResponse_Retry:
		return fmt.Sprintf("retry %s in %v", e.Retry.GetReason(), time.Duration(e.Retry.GetDelayMs())*time.Millisecond)
	case *llmv1.GenerateResponse_Reasoning:
		return "reasoning " + e.Reasoning
	case *llmv1.GenerateResponse_ToolCall:
		return fmt.Sprintf("call %s %s %s", e.ToolCall.GetId(), e.ToolCall.GetName(), e.ToolCall.GetArguments())
	case *llmv1.GenerateResponse_Usage:
		return fmt.Sprintf("usage %d+%d of %d", e.Usage.GetInputTokens(), e.Usage.GetOutputTokens(), e.Usage.GetContextWindow())
	}
	return fmt.Sprint(event)
}

// pipeListener hands out the server's ends of pipes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
