package process

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// stderrReader keeps the end of what passes.
type stderrReader struct {
	io.ReadCloser
	kept *tail
	end  chan struct{}
}

func (s *stderrReader) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.kept.write(p[:n])
	if err != nil && s.end != nil {
		close(s.end)
		s.end = nil
	}
	return n, err
}

// logGuard hands on lines of a log, and quotes those at which go-plugin would panic and take the whole host along. One goroutine reads it.
type logGuard struct {
	io.Closer
	lines *bufio.Reader
	ready []byte // of the line that is being handed on
	long  bool   // that line is too long for one piece, and goes on
	err   error  // after it
}

func guardLog(log io.ReadCloser) *logGuard {
	return &logGuard{Closer: log, lines: bufio.NewReaderSize(log, logLineLimit)}
}

func (g *logGuard) Read(p []byte) (int, error) {
	if len(g.ready) == 0 && g.err == nil {
		line, err := g.lines.ReadSlice('\n')
		inside := g.long
		if g.long = errors.Is(err, bufio.ErrBufferFull); !g.long {
			g.err = err
		}
		if !inside && !g.long && !isSafe(line) { // go-plugin takes no piece of a long line for an entry
			line = append(strconv.AppendQuote(nil, string(bytes.TrimSpace(line))), '\n')
		}
		g.ready = line
	}
	if len(g.ready) == 0 {
		return 0, g.err
	}
	n := copy(p, g.ready)
	g.ready = g.ready[n:]
	return n, nil
}

// isSafe is false for an object that has the names of a log entry with values that are no strings: go-plugin takes them for strings unseen.
func isSafe(line []byte) bool {
	var entry map[string]json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) || json.Unmarshal(line, &entry) != nil {
		return true
	}
	for _, name := range []string{"@message", "@level", "@timestamp"} {
		if value, ok := entry[name]; ok && value[0] != '"' {
			return false
		}
	}
	return true
}
