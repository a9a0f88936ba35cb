package executor

import (
	"fmt"
	"sync"
	"time"
)

const (
	// liveInterval is the time from the first unsent byte to the message that carries it.
	liveInterval = 50 * time.Millisecond
	liveMessage  = 32 << 10
	// liveTotal is how much is sent while a command runs; of what comes after it, the last liveTail bytes follow at the end.
	liveTotal = 256 << 10
	liveTail  = 16 << 10
)

// live gathers what a command prints, its streams in the order of arrival, for people to watch. Writers never wait for a reader:
// what it holds is bounded.
type live struct {
	wake chan struct{} // has an element when there may be something to send

	mu      sync.Mutex
	pending []byte
	passed  int       // bytes that went through pending
	last    byte      // of them
	over    int64     // bytes that came when liveTotal was reached
	tail    ring      // the last of those
	held    [2][]byte // of each stream, the beginning of a character
}

func newLive() *live { return &live{wake: make(chan struct{}, 1)} }

// write takes what one of the two streams brought.
func (l *live) write(stream int, p []byte) {
	if len(p) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.held[stream]) > 0 && len(p) > 0 {
		held := l.held[stream]
		n := min(len(p), runeLength(held[0])-len(held))
		joined := append(held, p[:n]...)
		keep := incomplete(joined)
		l.add(joined[:len(joined)-keep])
		l.held[stream] = append(held[:0], joined[len(joined)-keep:]...)
		p = p[n:]
	}
	keep := incomplete(p)
	l.add(p[:len(p)-keep])
	l.held[stream] = append(l.held[stream], p[len(p)-keep:]...)
}

func (l *live) add(p []byte) {
	if len(p) == 0 {
		return
	}
	if room := liveTotal - l.passed; l.over == 0 && room > 0 {
		n := len(p)
		if n > room {
			n = room - incomplete(p[:room])
		}
		l.pending = append(l.pending, p[:n]...)
		l.passed += n
		if n > 0 {
			l.last = p[n-1]
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
		p = p[n:]
	}
	l.over += int64(len(p))
	l.tail.write(p, liveTail)
}

// next returns up to a message of what waits; empty: nothing.
func (l *live) next() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.pending)
	if n > liveMessage {
		n = liveMessage
		n -= incomplete(l.pending[:n])
	}
	message := l.pending[:n:n] // later writes append behind it
	l.pending = l.pending[n:]
	if len(l.pending) == 0 {
		l.pending = nil
	}
	return message
}

// end makes next return the rest: what was held back, and of what was too much the tail.
func (l *live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for stream, held := range l.held {
		l.add(held)
		l.held[stream] = nil
	}
	if l.over == 0 {
		return
	}
	tail := l.tail.take()
	if skipped := l.over - int64(len(tail)); skipped > 0 {
		whole := fromBoundary(tail)
		skipped += int64(len(tail) - len(whole))
		tail = whole
		if l.last != '\n' {
			l.pending = append(l.pending, '\n')
		}
		l.pending = fmt.Appendf(l.pending, "[… %d bytes not shown …]\n", skipped)
	}
	l.pending = append(l.pending, tail...)
	l.over = 0
}

// runeLength is the length of a character that begins with b.
func runeLength(b byte) int {
	switch {
	case b >= 0xf0:
		return 4
	case b >= 0xe0:
		return 3
	case b >= 0xc0:
		return 2
	}
	return 1
}
