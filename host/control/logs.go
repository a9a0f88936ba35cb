package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

const (
	// logsKept is how many entries are kept.
	logsKept = 2000
	// maxLogText limits the message of an entry and each of its fields, in bytes, so that what is kept is bounded.
	maxLogText = 4 << 10
)

// Logs keeps what was logged last, from the level debug on. It is an [hclog.SinkAdapter]; readers follow at their own pace, and those who
// are too slow lose entries rather than slow the host. mu guards all of it.
type Logs struct {
	mu      sync.Mutex
	entries []*controlv1.LogEntry // a ring: entry n, from 0, is at n % logsKept
	count   int                   // so many were logged
	more    chan struct{}         // closed with the next entry; nil: nobody waits
}

// NewLogs returns empty logs.
func NewLogs() *Logs { return &Logs{entries: make([]*controlv1.LogEntry, logsKept)} }

// Accept implements [hclog.SinkAdapter]. The first part of a logger's name is the program's and is dropped.
func (l *Logs) Accept(name string, level hclog.Level, message string, args ...any) {
	if level < hclog.Debug {
		return
	}
	_, source, _ := strings.Cut(name, ".")
	entry := &controlv1.LogEntry{
		Time: timestamppb.New(time.Now()), Level: controlv1.Level(level - hclog.Debug + hclog.Level(controlv1.Level_LEVEL_DEBUG)),
		Source: source, Message: bounded(message), Fields: fields(args),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[l.count%logsKept] = entry
	l.count++
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

func fields(args []any) []*controlv1.LogEntry_Field {
	var list []*controlv1.LogEntry_Field
	for pair := range slices.Chunk(args, 2) {
		f := &controlv1.LogEntry_Field{Key: fmt.Sprint(pair[0])}
		if len(pair) == 2 {
			value := pair[1]
			if format, ok := value.(hclog.Format); ok && len(format) > 0 {
				value = fmt.Sprintf(fmt.Sprint(format[0]), format[1:]...)
			}
			f.Value = bounded(fmt.Sprint(value))
		}
		list = append(list, f)
	}
	return list
}

// bounded is a text that fits an entry.
func bounded(text string) string {
	if len(text) > maxLogText {
		text = fmt.Sprintf("%s… (%d bytes)", text[:maxLogText], len(text))
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// read sends the entries that a request asks for.
func (l *Logs) read(ctx context.Context, req *controlv1.LogsRequest, send func(*controlv1.LogsResponse) error) error {
	next := l.tail(req)
	for {
		batch, dropped, more := l.from(next)
		next += dropped + len(batch)
		if dropped > 0 {
			if err := send(&controlv1.LogsResponse{Event: &controlv1.LogsResponse_Dropped{Dropped: int64(dropped)}}); err != nil {
				return err
			}
		}
		for _, entry := range batch {
			if !wanted(entry, req) {
				continue
			}
			if err := send(&controlv1.LogsResponse{Event: &controlv1.LogsResponse_Entry{Entry: entry}}); err != nil {
				return err
			}
		}
		if !req.GetFollow() {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

// tail is the number of the first entry to send.
func (l *Logs) tail(req *controlv1.LogsRequest) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.count
	for n, missing := l.count-1, req.GetTail(); missing > 0 && n >= l.oldest(); n-- {
		if wanted(l.entries[n%logsKept], req) {
			first = n
			missing--
		}
	}
	return first
}

// oldest is the number of the oldest entry that is kept. mu is held.
func (l *Logs) oldest() int { return max(0, l.count-logsKept) }

// from returns the entries that are kept from number n on, how many from there are not, and what tells of more.
func (l *Logs) from(n int) (batch []*controlv1.LogEntry, dropped int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped = max(0, l.oldest()-n)
	for i := n + dropped; i < l.count; i++ {
		batch = append(batch, l.entries[i%logsKept])
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return batch, dropped, l.more
}

func wanted(e *controlv1.LogEntry, req *controlv1.LogsRequest) bool {
	lowest := req.GetLevel()
	if lowest == controlv1.Level_LEVEL_UNSPECIFIED {
		lowest = controlv1.Level_LEVEL_INFO
	}
	return e.GetLevel() >= lowest && (req.GetRow() == "" || concerns(e, req.GetRow()))
}

// concerns is true when a row logged the entry, or the host did about the row.
func concerns(e *controlv1.LogEntry, row string) bool {
	return e.GetSource() == row || strings.HasPrefix(e.GetSource(), row+".") ||
		slices.ContainsFunc(e.GetFields(), func(f *controlv1.LogEntry_Field) bool { return f.GetKey() == "row" && f.GetValue() == row })
}
