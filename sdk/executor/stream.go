package executor

import (
	"sync"
	"unicode/utf8"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// stream is what a command writes to one of its outputs: the tail in memory, and once that is not all, the whole in a spill file.
type stream struct {
	mu       sync.Mutex
	limit    int
	tail     ring
	written  int64 // all that came
	read     int64 // of it, what has been handed out by next
	spill    *spill
	finished bool // what still comes is thrown away
}

func (s *stream) write(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return
	}
	if s.written+int64(len(p)) > int64(s.limit) && s.spill != nil {
		if s.written <= int64(s.limit) { // everything is still in memory
			first, second := s.tail.parts()
			s.spill.write(first)
			s.spill.write(second)
		}
		s.spill.write(p)
	}
	s.tail.write(p, s.limit)
	s.written += int64(len(p))
}

// finish ends the stream: later writes are thrown away.
func (s *stream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	if s.spill != nil {
		s.spill.close()
	}
}

// result returns a finished stream. Its memory is the caller's then.
func (s *stream) result() *bashv1.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &bashv1.Stream{Data: s.tail.take(), Truncated: s.written > int64(s.limit)}
	if r.GetTruncated() {
		r.Data = fromBoundary(r.GetData())
		r.SpillPath, r.SpillCapped = s.spill.where()
	}
	return r
}

// end returns a copy of the last n bytes, of those in memory.
func (s *stream) end(n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail.last(min(n, len(s.tail.buf)))
}

// spilled is where the whole stream is, empty when it could not be written, and whether its end is missing there.
func (s *stream) spilled() (path string, capped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spill.where()
}

func (s *stream) removeSpill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spill != nil {
		s.spill.remove()
	}
}

// leftOver is a finished stream of which nobody has read the data; when some was dropped before it, that is in the spill.
func leftOver(data []byte, dropped bool, s *spill) *stream {
	left := &stream{limit: len(data), written: int64(len(data)), tail: ring{buf: data}, spill: s, finished: true}
	if dropped {
		left.written++
	}
	return left
}

// unread is what next would return of a finished stream, and where all of it is.
func (s *stream) unread() *bashv1.AdoptRequest_Output {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread := s.written - s.read
	o := &bashv1.AdoptRequest_Output{Dropped: unread > int64(s.limit)}
	if unread > 0 {
		o.Data = s.tail.last(int(min(unread, int64(s.limit))))
	}
	if s.spill != nil {
		o.SpillPath, o.SpillCapped = s.spill.where()
	}
	return o
}

// next returns what came since the last call; dropped tells that some of it is not in memory any more. Unless the stream is
// finished it does not end inside a character.
func (s *stream) next() (data []byte, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread := s.written - s.read
	if unread == 0 {
		return nil, false
	}
	data = s.tail.last(int(min(unread, int64(s.limit))))
	if unread > int64(s.limit) {
		dropped = true
		data = fromBoundary(data)
	}
	s.read = s.written
	if s.finished {
		s.tail = ring{}
		return data, dropped
	}
	held := incomplete(data)
	s.read -= int64(held)
	return data[:len(data)-held], dropped
}

// fromBoundary drops the rest of a character that text begins inside of.
func fromBoundary(text []byte) []byte {
	for i := 0; i < len(text) && i < utf8.UTFMax; i++ {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text // no text at all
}

// incomplete is how many bytes at the end of text begin a character that the next bytes may complete.
func incomplete(text []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if b := text[len(text)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// ring keeps the last bytes written to it. It grows as it is written to, up to the limit.
type ring struct {
	buf   []byte
	start int // of the oldest byte, once buf is full
}

func (r *ring) write(p []byte, limit int) {
	if len(p) >= limit {
		p = p[len(p)-limit:]
		if cap(r.buf) < limit {
			r.buf = make([]byte, 0, limit)
		}
		r.buf, r.start = append(r.buf[:0], p...), 0
		return
	}
	if free := limit - len(r.buf); free > 0 {
		n := min(free, len(p))
		r.grow(len(r.buf)+n, limit)
		r.buf = append(r.buf, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(r.buf[r.start:], p)
		r.start = (r.start + n) % limit
		p = p[n:]
	}
}

func (r *ring) grow(size, limit int) {
	if size <= cap(r.buf) {
		return
	}
	grown := make([]byte, len(r.buf), min(limit, max(size, 2*cap(r.buf), 512)))
	copy(grown, r.buf)
	r.buf = grown
}

// parts are the bytes in order.
func (r *ring) parts() (first, second []byte) { return r.buf[r.start:], r.buf[:r.start] }

// last returns a copy of the last n bytes.
func (r *ring) last(n int) []byte {
	first, second := r.parts()
	out := make([]byte, 0, n)
	if n > len(second) {
		out = append(out, first[len(first)-(n-len(second)):]...)
		return append(out, second...)
	}
	return append(out, second[len(second)-n:]...)
}

// take returns the bytes in order and leaves the ring empty.
func (r *ring) take() []byte {
	out := r.buf
	if r.start > 0 {
		out = r.last(len(r.buf))
	}
	*r = ring{}
	return out
}
