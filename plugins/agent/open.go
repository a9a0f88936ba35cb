package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
)

// create makes a session and stores it.
func (a *agent) create(id, cwd string) (*session, error) {
	path := a.store.logPath(id)
	l, err := createLog(path)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "create session: %v", err)
	}
	s := newSession(a, id, l)
	err = s.append(&agents.SessionCreated{Format: agents.Format, SessionID: id, Cwd: cwd})
	if err == nil {
		err = l.sync()
	}
	if err == nil {
		err = syncDir(a.store.dir)
	}
	if err != nil {
		l.close()
		os.Remove(path)
		return nil, status.Errorf(codes.Internal, "create session: %v", status.Convert(err).Message())
	}
	s.saveInfo()
	return s, nil
}

// checkCwd refuses a directory that no session can work in.
func checkCwd(cwd string) error {
	if !filepath.IsAbs(cwd) {
		return status.Errorf(codes.InvalidArgument, "cwd must be an absolute path: %s", cwd)
	}
	info, err := os.Stat(cwd)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.Errorf(codes.InvalidArgument, "cwd does not exist: %s", cwd)
	case err != nil:
		return status.Errorf(codes.InvalidArgument, "cwd cannot be used: %v", err)
	case !info.IsDir():
		return status.Errorf(codes.InvalidArgument, "cwd is not a directory: %s", cwd)
	}
	return nil
}

// load opens a stored session and repairs what a crash left.
func (a *agent) load(id string) (*session, error) {
	if !validID(id) {
		return nil, unknownSession(id)
	}
	s := newSession(a, id, nil)
	l, err := openLog(a.store.logPath(id), func(e agents.Event) error {
		if created, ok := e.Data.(*agents.SessionCreated); ok {
			if err := checkCreated(created); err != nil {
				return err
			}
		}
		s.conv.apply(e)
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && l.seq == 0: // a crash came before it was created
		if err == nil {
			l.close()
		}
		return nil, unknownSession(id)
	case errors.Is(err, errLocked):
		return nil, err
	case err != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "load session %s: %v", id, err)
	}
	s.log = l
	if err := s.repair(); err != nil {
		l.close()
		return nil, err
	}
	return s, nil
}

func checkCreated(created *agents.SessionCreated) error {
	switch {
	case created.Format > agents.Format:
		return fmt.Errorf("its log has format %d and this dsh reads formats up to %d; use a newer dsh", created.Format, agents.Format)
	case !filepath.IsAbs(created.Cwd):
		return fmt.Errorf("its cwd is not an absolute path: %q", created.Cwd)
	}
	return nil
}

// show hands the events of a stored session after event seq to send. It takes no lock and repairs nothing: another process may have the
// session.
func (a *agent) show(id string, seq uint64, send func([]*agentsv1.Event) error) error {
	if !validID(id) {
		return unknownSession(id)
	}
	path := a.store.logPath(id)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return unknownSession(id)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "read session %s: %v", id, err)
	}
	defer file.Close()
	l := &eventLog{file: file}
	var failed error
	out := batch{send: func(events []*agentsv1.Event, _ int64) error { return send(events) }}
	err = l.scan(path, func(e agents.Event, line []byte) error {
		if created, ok := e.Data.(*agents.SessionCreated); ok {
			if err := checkCreated(created); err != nil {
				return err
			}
		}
		if e.Seq > seq {
			failed = out.add(e.Seq, bytes.Clone(line))
		}
		return failed
	})
	if failed == nil {
		failed = out.flush()
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return status.Errorf(codes.FailedPrecondition, "read session %s: %v", id, err)
	case l.seq == 0: // a crash came before it was created
		return unknownSession(id)
	case l.seq < seq:
		return noSuchEvent(id, seq, l.seq)
	}
	return nil
}

func noSuchEvent(id string, seq, last uint64) error {
	return status.Errorf(codes.OutOfRange, "session %s has no event %d: the last is %d", id, seq, last)
}

// adopt opens a session that another instance of the row had. While that one still has it, adopt says where, or waits.
func (a *agent) adopt(ctx context.Context, id string) (*session, error) {
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		s, err := a.load(id)
		if !errors.Is(err, errLocked) {
			return s, err
		}
		a.mu.Lock()
		claim := a.inherited[id]
		a.mu.Unlock()
		if claim != "" || a.replaced.Load() {
			return nil, &elsewhere{claim}
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// delete removes a session that is not live.
func (a *agent) delete(id string) error {
	if !validID(id) {
		return nil
	}
	file, err := os.OpenFile(a.store.logPath(id), os.O_RDWR, 0)
	if err == nil {
		defer file.Close()
		err = lock(file)
	}
	switch {
	case errors.Is(err, errLocked):
		return status.Errorf(codes.FailedPrecondition, "delete session %s: it is in use by another process", id)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return status.Errorf(codes.Internal, "delete session %s: %v", id, err)
	}
	if err := a.store.remove(id); err != nil {
		return status.Errorf(codes.Internal, "delete session %s: %v", id, err)
	}
	return nil
}
