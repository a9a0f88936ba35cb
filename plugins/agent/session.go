package agent

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/agents"
)

// maxQueue bounds the messages that wait for a turn.
const maxQueue = 64

var (
	errReleased  = errors.New("the session was released")
	errCancelled = errors.New("cancelled")
)

// session is a live session: its log, what the log means, and what is under way. mu guards everything below it and is held for
// single events, never while the model or a tool runs. One goroutine runs the session's turns, only while there are any; what
// it appends and what the calls append is in the log in the order of the lock.
type session struct {
	agent *agent
	id    string

	mu    sync.Mutex
	log   *eventLog
	conv  *conversation
	queue []*prompt
	turn  *turn // the running one
	// question is that of the running turn, as long as a call waits for its answer.
	question *question

	running  bool          // the goroutine of the turns is there
	closing  bool          // takes no messages
	released chan struct{} // closed when the log is closed

	followers map[*follower]struct{}
	changed   chan struct{} // closed when the log has grown; nil while nobody waits
	moved     chan struct{} // closed when a follower has caught up some; nil while no turn waits
}

// prompt is a message on its way into a turn.
type prompt struct {
	id        string
	content   []agents.ContentBlock
	cancelled bool
	canAsk    bool
	follower  *follower
}

func newSession(a *agent, id string, l *eventLog) *session {
	return &session{agent: a, id: id, log: l, conv: &conversation{system: a.config.SystemPrompt}, released: make(chan struct{}), followers: map[*follower]struct{}{}}
}

// append adds an event to the log and to what it means. The lock is held.
func (s *session) append(data agents.Data) error {
	e, err := s.log.append(data)
	if errors.Is(err, errTooLarge) {
		return err
	}
	if err != nil {
		return status.Errorf(codes.Internal, "write the log of session %s: %v", s.id, err)
	}
	s.conv.apply(e)
	s.wake()
	return nil
}

// repair completes a log that ends in the middle of a turn. The lock is held, or nobody else has the session yet.
func (s *session) repair() error {
	missing := s.conv.repair()
	for _, data := range missing {
		if err := s.append(data); err != nil {
			return err
		}
	}
	if len(missing) == 0 && !s.log.torn {
		return nil
	}
	s.log.torn = false
	if err := s.log.sync(); err != nil {
		return status.Errorf(codes.Internal, "write the log of session %s: %v", s.id, err)
	}
	return nil
}

// enqueue takes a message; from here on cancel reaches it.
func (s *session) enqueue(p *prompt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isReleased():
		return errReleased
	case s.closing:
		return unknownSession(s.id)
	case !s.running && s.agent.replaced.Load(): // a turn that begins now would be unknown to the successor
		s.release()
		return errReleased
	case len(s.queue) == maxQueue:
		return status.Errorf(codes.ResourceExhausted, "session %s has %d messages waiting; send this one again when a turn has ended", s.id, maxQueue)
	case s.find(p.id) != nil || s.turn.takes(p.id):
		return status.Errorf(codes.InvalidArgument, "prompt %s is in session %s already", p.id, s.id)
	}
	s.queue = append(s.queue, p)
	if !s.running {
		s.running = true
		s.agent.host.Go("turns of session "+s.id, s.run)
	}
	return nil
}

// find returns a queued prompt.
func (s *session) find(id string) *prompt {
	for _, p := range s.queue {
		if p.id == id {
			return p
		}
	}
	return nil
}

// cancel ends the turn that takes a prompt, running or to come.
func (s *session) cancel(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReleased() {
		return errReleased
	}
	if p := s.find(id); p != nil {
		p.cancelled = true
	} else if s.turn.takes(id) {
		s.turn.stop(errCancelled)
	}
	return nil
}

// inject logs context for the next model request, once per key.
func (s *session) inject(d *agents.ContextInjected) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReleased() {
		return errReleased
	}
	if _, known := s.conv.keys[d.Key]; known {
		return nil
	}
	return s.appendOutside(d)
}

// appendOutside adds an event that may stand outside of turns. The lock is held.
func (s *session) appendOutside(data agents.Data) error {
	if err := s.append(data); err != nil {
		return err
	}
	if s.running {
		return nil // the turn's end syncs it
	}
	return s.log.sync()
}

// subscribe lets a follower begin after event seq. Without live, or while no turn is under way, it ends with the log as it is.
func (s *session) subscribe(f *follower, seq uint64, live bool) error {
	s.mu.Lock()
	last := s.log.seq
	s.mu.Unlock()
	if seq > last {
		return noSuchEvent(s.id, seq, last)
	}
	offset, err := offsetAfter(f.file, seq)
	if err != nil {
		return status.Errorf(codes.Internal, "read the log of session %s: %v", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReleased() {
		return errReleased
	}
	if !live || !s.running {
		f.seq, f.offset, f.end = seq, offset, s.log.size
		return nil
	}
	s.follow(f, seq, offset)
	return nil
}

// close stops what the session does, waits for it, and frees the session.
func (s *session) close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for _, p := range s.queue {
		p.cancelled = true
	}
	if s.turn != nil {
		s.turn.stop(errCancelled)
	}
	if !s.running {
		s.release()
	}
	s.mu.Unlock()
	select {
	case <-s.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retire frees the session for another instance, at once or when its turns are over.
func (s *session) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		s.release()
	}
}

// release closes the log. The lock is held, and no turn is under way.
func (s *session) release() {
	if s.isReleased() {
		return
	}
	if err := s.log.close(); err != nil {
		s.agent.host.Log().Error("log was not closed", "session", s.id, "error", err)
	}
	s.agent.forget(s)
	close(s.released)
}

func (s *session) isReleased() bool {
	select {
	case <-s.released:
		return true
	default:
		return false
	}
}

// saveInfo stores what List shows. The lock is held.
func (s *session) saveInfo() {
	if err := s.agent.store.writeInfo(s.id, s.conv.info()); err != nil {
		s.agent.host.Log().Warn("the session's entry in the list is out of date", "session", s.id, "error", err)
	}
}
