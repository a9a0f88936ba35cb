package process

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// goPluginLog takes what go-plugin logs: its own words about a process are for debugging, what the process logs passes.
type goPluginLog struct{ hclog.Logger }

func (g goPluginLog) Info(msg string, args ...any)  { g.Trace(msg, args...) }
func (g goPluginLog) Debug(msg string, args ...any) { g.Trace(msg, args...) }

// Named is how go-plugin makes the loggers for its stdio stream, which is not used, and for the process's stderr.
func (g goPluginLog) Named(name string) hclog.Logger {
	if name == "stdio" {
		return hclog.NewNullLogger()
	}
	return pluginLog(g)
}

// pluginLog takes what a process writes to stderr: log entries, and lines that are none, which come without arguments.
type pluginLog struct{ hclog.Logger }

func (p pluginLog) Trace(msg string, args ...any) { p.Logger.Trace(msg, own(args)...) }
func (p pluginLog) Info(msg string, args ...any)  { p.Logger.Info(msg, own(args)...) }
func (p pluginLog) Warn(msg string, args ...any)  { p.Logger.Warn(msg, own(args)...) }
func (p pluginLog) Error(msg string, args ...any) { p.Logger.Error(msg, own(args)...) }

func (p pluginLog) Debug(msg string, args ...any) {
	if len(args) == 0 {
		p.Logger.Info("printed: " + msg)
		return
	}
	p.Logger.Debug(msg, own(args)...)
}

// own drops what the host's log says anyway.
func own(args []any) []any {
	var kept []any
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] != "timestamp" && args[i] != "@module" {
			kept = append(kept, args[i], args[i+1])
		}
	}
	return kept
}

// handshakeReader hands on the first line of a stdout and logs what follows. One goroutine reads it.
type handshakeReader struct {
	file io.ReadCloser
	past bool // the first line is over
	rest printLog
}

func (h *handshakeReader) Read(p []byte) (int, error) {
	if !h.past {
		n, err := h.file.Read(p)
		end := bytes.IndexByte(p[:n], '\n')
		if end < 0 {
			return n, err
		}
		h.past = true
		h.rest.write(p[end+1 : n])
		return end + 1, err
	}
	buffer := make([]byte, 4096)
	for {
		n, err := h.file.Read(buffer)
		h.rest.write(buffer[:n])
		if err != nil {
			h.rest.flush()
			return 0, err
		}
	}
}

func (h *handshakeReader) Close() error { return h.file.Close() }

// printLog logs text line by line.
type printLog struct {
	log  hclog.Logger
	line []byte
}

func (p *printLog) write(data []byte) {
	for {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		p.line = append(p.line, line...)
		if found || len(p.line) >= logLineLimit {
			p.flush()
		}
		if !found {
			return
		}
		data = rest
	}
}

func (p *printLog) flush() {
	if len(p.line) > 0 {
		p.log.Info("printed: " + string(p.line))
	}
	p.line = nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	limit int
	data  []byte
}

func (t *tail) write(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p[max(0, len(p)-t.limit):]...)
	if extra := len(t.data) - t.limit; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
}

// lastLines joins the last lines. A panic is shown by its head alone: what follows it is stack. Of log entries only the message counts.
func (t *tail) lastLines(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(strings.ToValidUTF8(string(t.data), "\ufffd")) {
		line = entryMessage(strings.TrimSpace(line))
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// entryMessage is the message of a line that is a log entry, nothing if it is for debugging; other lines are as they are.
func entryMessage(line string) string {
	var entry struct {
		Level   string `json:"@level"`
		Message string `json:"@message"`
		Error   string `json:"error"`
	}
	if json.Unmarshal([]byte(line), &entry) != nil || entry.Level == "" {
		return line
	}
	switch {
	case entry.Level == "trace" || entry.Level == "debug":
		return ""
	case entry.Error != "":
		return entry.Message + ": " + entry.Error
	default:
		return entry.Message
	}
}
