package acp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk/agents"
)

// session is a session that the editor has opened, is opening or is closing. bridge.mu guards it. An idle one has no goroutine.
type session struct {
	b  *bridge
	id string
	// live is true while the session is open: what the mailbox goes by.
	live bool
	// expected is what live will be when the mailbox is empty: what the reader goes by. Each request that changes it has an epoch.
	expected bool
	epoch    int
	prompt   *prompt // in flight: received and not answered
	mailbox  []func()
	working  bool
}

// expect notes what a request will make of the session. mu is held.
func (s *session) expect(live bool) (epoch int) {
	s.expected = live
	s.epoch++
	return s.epoch
}

// became notes what a request has made of the session; when it is not what was expected, later requests go by it.
func (s *session) became(live bool, epoch int) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.live = live
	if s.epoch == epoch {
		s.expected = live
	}
	signal(s.b.dirty)
}

func (s *session) isLive() bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.live
}

func (s *session) full() bool { return len(s.mailbox) >= maxMailbox }

func (s *session) busy() error {
	return jsonrpc.Errorf(jsonrpc.CodeInternal, "busy: %d requests wait for session %s", maxMailbox, s.id)
}

// post puts a request into the mailbox. mu is held.
func (s *session) post(r *request, handler func(context.Context, *request)) {
	s.mailbox = append(s.mailbox, func() { r.handle(handler) })
	if !s.working {
		s.working = true
		s.b.running.Go(s.empty)
	}
}

// empty runs the mailbox until nothing is left in it.
func (s *session) empty() {
	for {
		s.b.mu.Lock()
		if len(s.mailbox) == 0 {
			s.working = false
			s.mailbox = nil
			if !s.live && !s.expected {
				delete(s.b.sessions, s.id)
			}
			s.b.mu.Unlock()
			return
		}
		next := s.mailbox[0]
		s.mailbox = s.mailbox[1:]
		s.b.mu.Unlock()
		next()
	}
}

func alreadyLoaded(id string) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "session %s is already loaded", id)
}

// create makes a session. The editor knows it, and the reader takes requests for it, with the answer.
func (b *bridge) create(ctx context.Context, r *request, raw json.RawMessage) {
	var params sessionParams
	if err := decode(raw, &params); err != nil {
		r.fail(err)
		return
	}
	if err := b.checkSession(r.method, params); err != nil {
		r.fail(err)
		return
	}
	if err := checkDirectory(*params.Cwd); err != nil {
		r.fail(err)
		return
	}
	id, err := b.agents.Create(ctx, *params.Cwd)
	if err != nil {
		r.fail(err)
		return
	}
	b.mu.Lock()
	b.sessions[id] = &session{b: b, id: id, live: true, expected: true}
	b.mu.Unlock()
	signal(b.dirty)
	r.answer(newResult{id})
}

func checkDirectory(cwd string) error {
	info, err := os.Stat(cwd)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "cwd does not exist: %s", cwd)
	case err != nil:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "cwd cannot be used: %v", err)
	case !info.IsDir():
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "cwd is not a directory: %s", cwd)
	}
	return nil
}

// open loads or resumes the session; a load shows it whole before the answer.
func (s *session) open(ctx context.Context, r *request, epoch int) {
	if s.isLive() {
		r.fail(alreadyLoaded(s.id))
		return
	}
	if _, _, err := s.b.agents.Load(ctx, s.id); err != nil {
		s.became(false, epoch)
		r.fail(err)
		return
	}
	if r.method == methodLoad {
		if err := s.replay(ctx); err != nil {
			s.b.free(s.id)
			s.became(false, epoch)
			r.fail(err)
			return
		}
	}
	s.became(true, epoch)
	r.answer(empty{})
}

// replay shows the stored session.
func (s *session) replay(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.b.agents.Subscribe(ctx, s.id, 0, false)
	if err != nil {
		return err
	}
	v := view{Terminals: s.b.showsTerminals(), replay: true}
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return s.b.write(ctx, s.id, v.closeAll())
		}
		if err != nil {
			return err
		}
		if err := s.b.write(ctx, s.id, v.show(e)); err != nil {
			return err
		}
	}
}

// write sends updates.
func (b *bridge) write(ctx context.Context, sessionID string, updates []update) error {
	if len(updates) == 0 {
		return nil
	}
	lines, err := frames(sessionID, updates)
	if err != nil {
		return err
	}
	return b.lease.Write(ctx, lines...)
}

func (b *bridge) showsTerminals() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.terminals
}

// free closes a session that could not be shown whole.
func (b *bridge) free(id string) {
	ctx, cancel := context.WithTimeout(b.out, settleLimit)
	defer cancel()
	if err := b.agents.Close(ctx, id); err != nil {
		b.log.Warn("a session that could not be replayed was not closed", "session", id, "error", err)
	}
}

// close ends the session. Its prompt, if there was one, has been cancelled by the reader and answered before.
func (s *session) close(ctx context.Context, r *request, epoch int) {
	if !s.isLive() {
		r.fail(unknownSession(s.id))
		return
	}
	if err := s.b.agents.Close(ctx, s.id); err != nil && status.Code(err) != codes.NotFound {
		s.became(true, epoch)
		r.fail(err)
		return
	}
	s.became(false, epoch)
	r.answer(empty{})
}

func (s *session) delete(ctx context.Context, r *request, epoch int) {
	if err := s.b.agents.Delete(ctx, s.id); err != nil {
		s.became(s.isLive(), epoch)
		r.fail(err)
		return
	}
	s.became(false, epoch)
	r.answer(empty{})
}

func (b *bridge) list(ctx context.Context, r *request, raw json.RawMessage) {
	var params listParams
	if err := decode(raw, &params); err != nil {
		r.fail(err)
		return
	}
	if err := checkCwd(params.Cwd); err != nil {
		r.fail(err)
		return
	}
	page, next, err := b.agents.List(ctx, value(params.Cwd), value(params.Cursor))
	if err != nil {
		r.fail(err)
		return
	}
	result := listResult{Sessions: []listedSession{}, NextCursor: next}
	for _, s := range page {
		result.Sessions = append(result.Sessions, listed(s))
	}
	r.answer(result)
}

func listed(s agents.SessionInfo) listedSession {
	l := listedSession{SessionID: s.ID, Cwd: s.Cwd, Title: s.Title}
	if s.Updated.Unix() > 0 {
		l.UpdatedAt = s.Updated.UTC().Format(time.RFC3339Nano)
	}
	return l
}

func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
