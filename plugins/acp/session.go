package acp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
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
	expected   bool
	epoch      int
	prompt     *prompt           // in flight: received and not answered
	known      map[string]string // the options as the editor knows them; nil: there are none
	announced  int               // the version of the offer that the editor has been told
	announcing bool

	// The mailbox runs one after the other. Beside it, likewise, run the settings: while a turn is all that the mailbox has, or nothing.
	mailbox []mail
	current mailKind // of what the mailbox runs; 0: nothing
	beside  []func()
	setting bool // beside runs
}

// mail is something to do about a session, in its order.
type mail struct {
	kind mailKind
	run  func()
}

type mailKind int

const (
	work   mailKind = iota + 1 // opens or closes the session
	turn                       // a prompt
	notice                     // an announcement: nobody waits for it
)

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

func (s *session) full() bool { return len(s.mailbox)+len(s.beside) >= maxMailbox }

func (s *session) busy() error {
	return jsonrpc.Errorf(jsonrpc.CodeInternal, "busy: %d requests wait for session %s", maxMailbox, s.id)
}

// hasWork is true when something waits that a request is owed an answer for, after what runs. mu is held.
func (s *session) hasWork() bool {
	return slices.ContainsFunc(s.mailbox, func(m mail) bool { return m.kind != notice })
}

// post puts a request into the mailbox. mu is held.
func (s *session) post(kind mailKind, r *request, handler func(context.Context, *request)) {
	s.deliver(mail{kind, func() { r.handle(handler) }})
}

// deliver puts something into the mailbox. mu is held.
func (s *session) deliver(m mail) {
	s.mailbox = append(s.mailbox, m)
	s.proceed()
}

// postBeside lets a request run beside the turn, or before one that waits for the session to open. mu is held.
func (s *session) postBeside(r *request, handler func(context.Context, *request)) {
	run := func() { r.handle(handler) }
	if s.current == work || slices.ContainsFunc(s.mailbox, func(m mail) bool { return m.kind == work }) {
		last := len(s.mailbox)
		for last > 0 && s.mailbox[last-1].kind == turn {
			last--
		}
		s.mailbox = slices.Insert(s.mailbox, last, mail{work, run})
		return
	}
	s.beside = append(s.beside, run)
	if !s.setting {
		s.setting = true
		s.b.running.Go(s.emptyBeside)
	}
}

// proceed lets the mailbox run what comes next. mu is held.
func (s *session) proceed() {
	switch {
	case s.current != 0 || s.setting:
	case len(s.mailbox) > 0:
		s.current = s.mailbox[0].kind
		s.b.running.Go(s.empty)
	case !s.live && !s.expected:
		delete(s.b.sessions, s.id)
	}
}

// empty runs the mailbox until nothing is left in it, or settings come first.
func (s *session) empty() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for len(s.mailbox) > 0 && !s.setting {
		next := s.mailbox[0]
		s.mailbox = s.mailbox[1:]
		s.current = next.kind
		s.b.mu.Unlock()
		next.run()
		s.b.mu.Lock()
	}
	if len(s.mailbox) == 0 {
		s.mailbox = nil
	}
	s.current = 0
	s.proceed()
}

func (s *session) emptyBeside() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for len(s.beside) > 0 {
		next := s.beside[0]
		s.beside = s.beside[1:]
		s.b.mu.Unlock()
		next()
		s.b.mu.Lock()
	}
	s.beside, s.setting = nil, false
	s.proceed()
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
	s := &session{b: b, id: id, live: true, expected: true}
	answer := s.withOptions(openResult{SessionID: id}, b.options(ctx, id))
	b.mu.Lock()
	b.sessions[id] = s
	s.post(work, r, func(_ context.Context, r *request) { s.begin(r, answer) })
	b.mu.Unlock()
}

// begin answers the request that has opened the session, and announces the commands.
func (s *session) begin(r *request, answer openResult) {
	s.b.mu.Lock()
	s.announced = 0 // of what it was told before it was closed the editor keeps nothing
	s.b.mu.Unlock()
	lines := [][]byte{jsonrpc.Answer(r.id, answer)}
	if announcement := s.announcement(); announcement != nil {
		lines = append(lines, announcement)
	} else {
		signal(s.b.toolsChanged) // they are not known yet
	}
	s.b.keep()
	r.send(lines...)
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
	answer := s.withOptions(openResult{}, s.b.options(ctx, s.id))
	s.became(true, epoch)
	s.begin(r, answer)
}

// reload makes a session live again that the agent has lost, because it crashed.
func (b *bridge) reload(ctx context.Context, id string) error {
	_, _, err := b.agents.Load(ctx, id)
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
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
	s.b.keep()
	r.answer(empty{})
}

func (s *session) delete(ctx context.Context, r *request, epoch int) {
	if err := s.b.agents.Delete(ctx, s.id); err != nil {
		s.became(s.isLive(), epoch)
		r.fail(err)
		return
	}
	s.became(false, epoch)
	s.b.keep()
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
