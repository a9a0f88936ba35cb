package acp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/dsh-go/dsh/sdk/agents"
)

// maxBatchBytes is how much of a replay goes to stdout in one write.
const maxBatchBytes = 32 << 10

// replay shows the stored session: what its events made for the editor to see, and then its title and what its last request cost.
func (s *session) replay(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.b.agents.Subscribe(ctx, s.id, 0, false)
	if err != nil {
		return err
	}
	v := view{Terminals: s.b.showsTerminals(), replay: true}
	w := replayWriter{ctx: ctx, session: s}
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return w.finish(append(v.closeAll(), v.last()...))
		}
		if err != nil {
			return err
		}
		if err := w.show(v.show(e)); err != nil {
			return err
		}
	}
}

// replayWriter writes the updates of a replay: fewer than there were live, because what came in pieces is put together, and many of them
// at once. It belongs to the goroutine that replays.
type replayWriter struct {
	ctx     context.Context
	session *session
	batch   bytes.Buffer

	pending bool
	last    update          // pending, without its text
	text    strings.Builder // of last, when that can grow
}

func (w *replayWriter) show(updates []update) error {
	for _, u := range updates {
		text := u.growing()
		if w.pending && text != nil && w.last.continues(u) && w.text.Len()+len(*text) <= maxOutputBytes {
			w.text.WriteString(*text)
			continue
		}
		if err := w.encode(); err != nil {
			return err
		}
		w.pending, w.last = true, u
		w.text.Reset()
		if text != nil {
			w.text.WriteString(*text)
		}
	}
	return nil
}

func (w *replayWriter) finish(updates []update) error {
	if err := w.show(updates); err != nil {
		return err
	}
	if err := w.encode(); err != nil {
		return err
	}
	return w.flush()
}

// encode adds the pending update to the batch.
func (w *replayWriter) encode() error {
	if !w.pending {
		return nil
	}
	w.pending = false
	if text := w.last.growing(); text != nil {
		*text = w.text.String()
	}
	lines, err := frames(w.session.id, []update{w.last})
	if err != nil {
		return err
	}
	w.batch.Write(lines[0])
	if w.batch.Len() < maxBatchBytes {
		return nil
	}
	return w.flush()
}

func (w *replayWriter) flush() error {
	if w.batch.Len() == 0 {
		return nil
	}
	err := w.session.b.lease.Write(w.ctx, bytes.Clone(w.batch.Bytes()))
	w.batch.Reset()
	return err
}

// growing is the text of an update to which the next one may add; nil when there is none.
func (u update) growing() *string {
	switch u.Kind {
	case kindAgentMessage, kindAgentThought:
		if block, ok := u.Content.(contentBlock); ok {
			return block.Text
		}
	case kindCardUpdate:
		if u.Meta != nil && u.Meta.Output != nil {
			return &u.Meta.Output.Data
		}
	}
	return nil
}

// continues is true when next adds to the same text.
func (u update) continues(next update) bool {
	return u.Kind == next.Kind && u.ToolCallID == next.ToolCallID && u.growing() != nil && next.growing() != nil
}

// last is what a replay shows of the events that only say how things stand: as they stand in the end.
func (v *view) last() []update {
	var updates []update
	if v.title != "" {
		updates = append(updates, update{Kind: kindSessionInfo, Title: v.title})
	}
	if v.usage != nil {
		updates = append(updates, *v.usage)
	}
	return updates
}

func usageUpdate(u *agents.Usage) update {
	used := u.InputTokens + u.OutputTokens
	return update{Kind: kindUsage, Used: &used, Size: &u.ContextWindow}
}
