package agent

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/agentsv1"
)

// maxLag is how many bytes of events a turn may be ahead of a follower before it waits.
const maxLag = 256 << 10

// sendBytes is about how much of a log goes into one message; a longer event goes alone.
const sendBytes = 32 << 10

// follower reads a session's events for one call, out of the log's file at the call's own pace: what it has not read costs no
// memory, and what it reads is what stands in the log. The session's lock guards it; seq is the call's own once it follows.
type follower struct {
	file *os.File
	gone bool // the call is over

	seq    uint64 // of the last event sent
	offset int64  // where that event ends; -1: the turn has not begun
	end    int64  // where the stream ends; -1: not known yet
	err    error  // the turn could not be logged
}

// open makes a follower and hands it to begin. Unless that fails, the caller closes the follower.
func (s *session) open(begin func(*follower) error) error {
	file, err := os.Open(s.agent.store.logPath(s.id))
	if errors.Is(err, fs.ErrNotExist) {
		return unknownSession(s.id)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "read the log of session %s: %v", s.id, err)
	}
	err = begin(&follower{file: file, offset: -1, end: -1})
	if err != nil {
		file.Close()
	}
	return err
}

// closeFollower ends a follower, wherever it is: the session no longer waits for it.
func (s *session) closeFollower(f *follower) {
	f.file.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	f.gone = true
	delete(s.followers, f)
	s.followerMoved()
}

// follow lets a follower begin after event seq, which ends at offset. The lock is held.
func (s *session) follow(f *follower, seq uint64, offset int64) {
	f.seq, f.offset = seq, offset
	if !f.gone {
		s.followers[f] = struct{}{}
	}
}

// settle says where the stream ends, or that it cannot end well. The first word counts.
func (f *follower) settle(err error, end int64) {
	switch {
	case f.end >= 0 || f.err != nil:
	case err != nil:
		f.err = err
	default:
		f.end = end
	}
}

// send streams events until the follower's end, as many at once as are there.
func (s *session) send(ctx context.Context, f *follower, send func([]*agentsv1.Event) error) error {
	var buffer []byte
	for {
		from, upTo, err := s.awaitEvents(ctx, f)
		if err != nil || from == upTo {
			return err
		}
		size := min(upTo-from, sendBytes)
		for {
			if int64(cap(buffer)) < size {
				buffer = make([]byte, size)
			}
			buffer = buffer[:size]
			if _, err := f.file.ReadAt(buffer, from); err != nil {
				return status.Errorf(codes.Internal, "read the log of session %s: %v", s.id, err)
			}
			if bytes.IndexByte(buffer, '\n') >= 0 {
				break
			}
			size = min(upTo-from, size*4)
		}
		// The stream may keep what it is given: the buffer is reused.
		whole := bytes.Clone(buffer[:bytes.LastIndexByte(buffer, '\n')+1])
		out := batch{send: func(events []*agentsv1.Event, bytes int64) error {
			if err := send(events); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			f.offset += bytes
			s.followerMoved()
			return nil
		}}
		for line := range bytes.Lines(whole) {
			f.seq++
			if err := out.add(f.seq, line[:len(line)-1]); err != nil {
				return err
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
}

// batch gathers events into messages of about sendBytes. send gets how many bytes of the log they are, too.
type batch struct {
	send   func(events []*agentsv1.Event, bytes int64) error
	events []*agentsv1.Event
	bytes  int64
}

func (b *batch) add(seq uint64, line []byte) error {
	if b.bytes+int64(len(line)) > sendBytes {
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.events = append(b.events, &agentsv1.Event{Seq: seq, Json: line})
	b.bytes += int64(len(line)) + 1
	return nil
}

func (b *batch) flush() error {
	if len(b.events) == 0 {
		return nil
	}
	events, bytes := b.events, b.bytes
	b.events, b.bytes = nil, 0
	return b.send(events, bytes)
}

// awaitEvents waits until the log has more for the follower, and says from where to where. Nothing: this was the end.
func (s *session) awaitEvents(ctx context.Context, f *follower) (from, upTo int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if f.offset >= 0 {
			upTo = s.log.size
			if f.end >= 0 {
				upTo = min(upTo, f.end)
			}
			if upTo > f.offset || f.end == f.offset {
				return f.offset, upTo, nil
			}
		}
		if f.err != nil {
			return 0, 0, f.err
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
	}
}

// wake tells the followers that the log has grown or that their end is known. The lock is held.
func (s *session) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// awaitFollowers holds a turn back while a follower is far behind. It returns early when the turn is to stop.
func (s *session) awaitFollowers(turn context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for turn.Err() == nil && s.lag() > maxLag {
		if s.moved == nil {
			s.moved = make(chan struct{})
		}
		moved := s.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-turn.Done():
		}
		s.mu.Lock()
	}
}

func (s *session) lag() int64 {
	var lag int64
	for f := range s.followers {
		if f.end < 0 {
			lag = max(lag, s.log.size-f.offset)
		}
	}
	return lag
}

// followerMoved lets a turn that is held back look again. The lock is held.
func (s *session) followerMoved() {
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

// offsetAfter finds where event seq ends: event n stands in line n.
func offsetAfter(file *os.File, seq uint64) (int64, error) {
	var offset int64
	buffer := make([]byte, 64<<10)
	for seq > 0 {
		n, err := file.ReadAt(buffer, offset)
		if n == 0 {
			return 0, err
		}
		chunk := buffer[:n]
		if lines := uint64(bytes.Count(chunk, []byte{'\n'})); lines <= seq { //nolint:gosec // a count is not negative
			seq -= lines
			offset += int64(n)
			if seq == 0 {
				last := int64(bytes.LastIndexByte(chunk, '\n'))
				return offset - int64(n) + last + 1, nil
			}
			continue
		}
		for ; seq > 0; seq-- {
			i := bytes.IndexByte(chunk, '\n')
			offset += int64(i) + 1
			chunk = chunk[i+1:]
		}
	}
	return offset, nil
}
