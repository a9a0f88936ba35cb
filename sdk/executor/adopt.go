package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
)

// When an executor has been replaced it gives its tasks that have ended to the one that serves now, and keeps those that run. A task
// that has been given away stays here too, so that it can be taken back when the successor does not last; calls about it are passed on.

const (
	// handOverLimit is how long a retired executor tries to give a task away: then, or when nobody takes tasks, it keeps the task
	// until it has been read, or for retiredLinger.
	handOverLimit = 30 * time.Second
	retiredLinger = time.Minute
	// handOverPause is how long it waits after an attempt that failed.
	handOverPause = 200 * time.Millisecond
)

// bash is the executor that serves now, or who holds the claim that a call carries.
func (e *engine) bash() bashv1.BashClient { return bashv1.NewBashClient(e.Conn()) }

// letGo sees to it that a retired instance does not stay for a task that has ended.
func (e *engine) letGo(t *task) {
	err := e.tell(func(ctx context.Context) error { return e.handOver(ctx, t) })
	if err != nil && e.hasRetired() {
		e.Log().Debug("a task that has ended stays here", "task", t.id, "error", err)
		e.work.Go(func() { e.linger(t) })
	}
}

// mention lets the executor that serves now know of a task that runs elsewhere: it lists it, and if the task is lost nobody else can
// tell its owner.
func (e *engine) mention(t savedTask) {
	err := e.tell(func(ctx context.Context) error {
		_, err := e.bash().Adopt(ctx, &bashv1.AdoptRequest{From: e.mark, Task: t.describe()})
		return err
	})
	if err != nil && e.hasRetired() {
		e.Log().Debug("the executor that serves does not know of a task", "task", t.ID, "error", err)
	}
}

// tell calls the executor that serves now until it listens, while this one is retired.
func (e *engine) tell(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(e.Done(), handOverLimit)
	defer cancel()
	for {
		err := call(ctx)
		if status.Code(err) != codes.Unavailable || !e.hasRetired() {
			return err
		}
		pause := time.NewTimer(handOverPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func (e *engine) hasRetired() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.retired
}

// handOver gives a task that has ended to the executor that serves now. Nobody can read it meanwhile.
func (e *engine) handOver(ctx context.Context, t *task) error {
	t.moving.Lock()
	defer t.moving.Unlock()
	if t.moved {
		return nil
	}
	stdout, stderr := t.streams()
	_, err := e.bash().Adopt(ctx, &bashv1.AdoptRequest{
		Task: t.describe(), Stdout: stdout.unread(), Stderr: stderr.unread(), Read: t.isRead(), From: e.mark,
	})
	t.moved = err == nil
	return err
}

// takeBack makes a task this instance's again that it had given away.
func (e *engine) takeBack(ctx context.Context, t *task) error {
	t.moving.Lock()
	defer t.moving.Unlock()
	if !t.moved {
		return nil
	}
	if err := e.TakeOver(ctx, bash.Seam, t.id); err != nil {
		return fmt.Errorf("take task %s back: %w", t.id, err)
	}
	t.moved = false
	return nil
}

// linger releases a task that nobody took when it has been read, or when nobody has for a while.
func (e *engine) linger(t *task) {
	limit := time.NewTimer(retiredLinger)
	defer limit.Stop()
	select {
	case <-t.allRead:
	case <-limit.C:
	case <-e.Done().Done():
		return
	}
	if e.hasRetired() {
		e.release(t)
	}
}

// Adopt takes over a task of an executor that this one has replaced.
func (s *server) Adopt(ctx context.Context, req *bashv1.AdoptRequest) (*bashv1.AdoptResponse, error) {
	from := req.GetTask()
	state := from.GetStatus().GetState()
	switch {
	case from.GetId() == "" || state == bashv1.TaskStatus_STATE_UNSPECIFIED:
		return nil, status.Errorf(codes.InvalidArgument, "adopt: task %q has no id or no status", from.GetId())
	case req.GetFrom() == s.mark:
		return nil, status.Errorf(codes.FailedPrecondition, "task %s is here already", from.GetId())
	case state == bashv1.TaskStatus_STATE_RUNNING:
		s.note(savedTask{ID: from.GetId(), Session: from.GetSessionId(), task: from})
		s.saveCheckpoint()
		return &bashv1.AdoptResponse{}, nil
	}
	s.launching.RLock()
	defer s.launching.RUnlock()
	if s.closed {
		return nil, s.stopping()
	}
	t := &task{
		id: from.GetId(), session: from.GetSessionId(), text: from.GetCommand(), dir: from.GetCwd(), started: from.GetStarted().AsTime(),
		told: true, allRead: make(chan struct{}),
		record: &record{
			status: from.GetStatus(), pid: from.GetPid(), ended: from.GetEnded().AsTime(), adopted: true,
			stdout: s.adoptOutput(req.GetStdout()), stderr: s.adoptOutput(req.GetStderr()),
		},
	}
	if req.GetRead() {
		t.wasRead()
	}
	t.moving.Lock() // it must be here before it can be given away again
	have, err := s.enter(t)
	if have != t {
		t.moving.Unlock()
		if err != nil {
			return nil, err
		}
		t = have
		t.moving.Lock()
	}
	defer t.moving.Unlock()
	if t.moved {
		return &bashv1.AdoptResponse{}, nil
	}
	// The one that gives the task away may end as soon as the claim is not its own any more, and its call with it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noticeLimit)
	defer cancel()
	if err := s.TakeOver(ctx, bash.Seam, t.id); err != nil {
		// The host may have done it: the task stays, and the other one tries again or keeps it too.
		return nil, status.Errorf(status.Code(err), "take over task %s: %s", t.id, status.Convert(err).Message())
	}
	s.forgetElsewhere(t.id)
	if t.isRead() {
		s.checkpoint.drop(t.id)
	} else {
		s.checkpoint.set(t.saved())
	}
	s.saveSoon()
	if s.hasRetired() { // meanwhile
		s.work.Go(func() { s.letGo(t) })
	}
	return &bashv1.AdoptResponse{}, nil
}

// adoptOutput is the rest of a stream. Without a link to its spill file only what is in memory is left.
func (e *engine) adoptOutput(o *bashv1.AdoptRequest_Output) *stream {
	s := &spill{spills: &e.spills, capped: o.GetSpillCapped()}
	if path := o.GetSpillPath(); path != "" {
		link, err := e.spills.link(path)
		if err != nil {
			e.Log().Warn("the file of a task's output is lost", "file", path, "error", err)
		}
		s.path = link
	}
	return leftOver(o.GetData(), o.GetDropped(), s)
}

// link gives a file of another executor a name among these.
func (s *spills) link(path string) (string, error) {
	if err := s.makeDir(); err != nil {
		return "", err
	}
	link := filepath.Join(s.dir, filepath.Base(path))
	if err := os.Link(path, link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return link, nil
}

// enter puts an adopted task among the others. It returns the one that is there already when its last owner did not hear of that; a task
// of this instance's own is refused.
func (e *engine) enter(t *task) (*task, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if have := e.tasks[t.id]; have != nil {
		if have.record == nil || !have.record.adopted {
			return nil, status.Errorf(codes.FailedPrecondition, "task %s is this executor's own", t.id)
		}
		return have, nil
	}
	e.tasks[t.id] = t
	e.order = append(e.order, t)
	slices.SortStableFunc(e.order, func(a, b *task) int { return cmp.Compare(a.started.UnixNano(), b.started.UnixNano()) })
	e.finished++
	return t, nil
}
