package executor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/events"
)

const (
	// noticeLimit is how long the executor tries to tell that a task has ended.
	noticeLimit = 30 * time.Second
	// saveDelay gathers the ends of many tasks into one checkpoint.
	saveDelay = 100 * time.Millisecond
)

// task is a background command and its owner. It is kept after its end.
type task struct {
	id      string
	session string // the owner; empty: open to all
	text    string // of the command
	dir     string
	started time.Time
	command *command // nil: it could not be started, or is a record that another instance left
	record  *record  // then this is what is left of it
	lost    string   // it was another instance's, which died: what there is to say about it

	killed atomic.Bool // a kill was asked for
	told   bool        // its end has been published, or will never be; guarded by the engine's mu

	moving sync.Mutex // held while it is read, and while it is given to another instance
	moved  bool       // it was; guarded by moving

	allRead  chan struct{} // closed when it was read after its end
	readOnce sync.Once
}

// record is what there is of a task without a command.
type record struct {
	status         *bashv1.TaskStatus
	pid            int64
	ended          time.Time
	stdout, stderr *stream
	adopted        bool // it is another instance's task
}

// streams are the task's outputs.
func (t *task) streams() (stdout, stderr *stream) {
	if t.command == nil {
		return t.record.stdout, t.record.stderr
	}
	return &t.command.stdout.stream, &t.command.stderr.stream
}

// status is the task's state and, once it has ended, how.
func (t *task) status() *bashv1.TaskStatus {
	if t.command == nil {
		return t.record.status
	}
	select {
	case <-t.command.done:
	default:
		if t.killed.Load() {
			return &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED}
		}
		return &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_RUNNING}
	}
	exit := t.command.exit
	if t.command.failure != nil {
		return &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED}
	}
	if exit.GetSignal() != "" {
		return &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED, Exit: exit}
	}
	return &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_COMPLETED, Exit: exit}
}

func (t *task) ended() bool {
	if t.command == nil {
		return true
	}
	select {
	case <-t.command.done:
		return true
	default:
		return false
	}
}

// read returns what came since the last read. It is false when another instance has the task.
func (t *task) read() (*bashv1.ReadResponse, bool) {
	t.moving.Lock()
	defer t.moving.Unlock()
	if t.moved {
		return nil, false
	}
	ended := t.ended() // before the output: what is reported as ended is complete
	r := &bashv1.ReadResponse{Status: t.status()}
	stdout, stderr := t.streams()
	var dropped bool
	r.Stdout, dropped = stdout.next()
	t.noteDrop(r, stdout, dropped)
	r.Stderr, dropped = stderr.next()
	t.noteDrop(r, stderr, dropped)
	if ended {
		t.wasRead()
	}
	return r, true
}

func (t *task) wasRead() { t.readOnce.Do(func() { close(t.allRead) }) }

// isRead tells whether the task was read after its end.
func (t *task) isRead() bool {
	select {
	case <-t.allRead:
		return true
	default:
		return false
	}
}

func (t *task) noteDrop(r *bashv1.ReadResponse, s *stream, dropped bool) {
	if dropped {
		path, capped := s.spilled()
		r.Dropped = true
		r.SpillPaths = append(r.SpillPaths, path)
		r.SpillCapped = append(r.SpillCapped, capped)
	}
}

// describe is the task as List shows it.
func (t *task) describe() *bashv1.Task {
	d := &bashv1.Task{
		Id: t.id, SessionId: t.session, Command: t.text, Cwd: t.dir, Status: t.status(), Started: timestamppb.New(t.started),
	}
	if t.command == nil {
		d.Pid, d.Ended = t.record.pid, timestamppb.New(t.record.ended)
		return d
	}
	d.Pid = int64(t.command.pid)
	if t.ended() {
		d.Ended = timestamppb.New(t.command.ended)
	}
	return d
}

// startTask starts a command in the background. What goes wrong once the command is known becomes the task's output.
func (e *engine) startTask(ctx context.Context, command *bashv1.Command) (string, error) {
	if err := check(command); err != nil {
		return "", err
	}
	id, err := e.Claim(ctx, bash.Seam, bash.TaskPrefix)
	if err != nil {
		return "", status.Errorf(status.Code(err), "claim an id for a background task: %s", status.Convert(err).Message())
	}
	t := &task{
		id: id, session: command.GetSessionId(), text: command.GetCommand(), started: time.Now(), allRead: make(chan struct{}),
	}
	e.launching.RLock()
	defer e.launching.RUnlock()
	if e.closed {
		_ = e.Release(context.WithoutCancel(ctx), bash.Seam, id)
		return "", e.stopping()
	}
	e.checkpoint.set(t.saved())
	saved := make(chan struct{})
	e.work.Go(func() { // while the process starts
		defer close(saved)
		e.saveCheckpoint()
	})
	p, err := e.prepare(command)
	if err == nil {
		t.dir = p.Dir
		t.command, err = e.launch(p, 0, nil)
	}
	if err != nil {
		text := []byte(status.Convert(err).Message() + "\n")
		t.record = &record{
			status: &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED}, ended: t.started,
			stdout: leftOver(nil, false, nil), stderr: leftOver(text, false, nil),
		}
	}
	e.mu.Lock()
	e.tasks[t.id] = t
	e.order = append(e.order, t)
	e.mu.Unlock()
	e.work.Go(func() { e.follow(t) })
	<-saved
	return id, nil
}

// saved is the task for the checkpoint.
func (t *task) saved() savedTask {
	return savedTask{ID: t.id, Session: t.session, Told: t.told, Lost: t.lost}
}

// saveCheckpoint keeps the tasks with the host. Without, all would be well but after a crash.
func (e *engine) saveCheckpoint() {
	if err := e.checkpoint.save(e.Done()); err != nil && e.Done().Err() == nil {
		e.Log().Warn("the list of tasks was not kept with the host", "error", err)
	}
}

// find returns a task to a session that may see it.
func (e *engine) find(ctx context.Context, id, session string) (*task, error) {
	e.mu.Lock()
	t := e.tasks[id]
	e.mu.Unlock()
	switch {
	case t == nil:
		return nil, e.unknown(ctx, id)
	case t.session != "" && t.session != session:
		return nil, status.Errorf(codes.PermissionDenied, "task %s belongs to another session", id)
	case t.lost != "":
		return nil, status.Error(codes.NotFound, t.lost)
	}
	return t, nil
}

// unknown tells of a task that is not here whether there ever was one.
func (e *engine) unknown(ctx context.Context, id string) error {
	allotted, err := e.Allotted(ctx, id)
	switch {
	case err != nil:
		return status.Errorf(codes.Unavailable, "task %q is not here, and the host does not say whether it was: %s", id, status.Convert(err).Message())
	case allotted:
		return status.Errorf(codes.NotFound, "task %s is no longer running here, and its output is not kept any more", id)
	}
	return status.Errorf(codes.NotFound, "unknown bash task %q", id)
}

// follow waits for the task's end and tells it.
func (e *engine) follow(t *task) {
	if t.command != nil {
		<-t.command.done
	}
	e.publish(&bashv1.TaskFinished{TaskId: t.id, SessionId: t.session, Status: t.status()})
	retired := e.conclude(t)
	e.saveSoon()
	if retired {
		e.letGo(t)
	}
}

// saveSoon keeps the tasks with the host in a while, once for many ends. A crash before it makes the next instance tell an end again, with
// the key by which that is known for a repetition.
func (e *engine) saveSoon() {
	if e.saving.Swap(true) {
		return
	}
	e.work.Go(func() {
		pause := time.NewTimer(saveDelay)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-e.closing:
		}
		e.saving.Store(false)
		e.saveCheckpoint()
	})
}

// conclude makes a task whose end has been told one of those that are kept for reading, and forgets the oldest when these become
// too many. It reports whether the instance has retired.
func (e *engine) conclude(t *task) (retired bool) {
	e.mu.Lock()
	t.told = true
	e.finished++
	retired, forgotten := e.retired, e.forgetTasks()
	e.mu.Unlock()
	if !t.isRead() {
		e.checkpoint.set(t.saved())
	}
	for _, old := range forgotten {
		e.checkpoint.drop(old.id)
		e.release(old)
		if old.lost == "" {
			stdout, stderr := old.streams()
			stdout.removeSpill()
			stderr.removeSpill()
		}
	}
	return retired
}

// forgetTasks removes the oldest finished tasks that are too many from what the engine keeps and returns them. mu is held.
func (e *engine) forgetTasks() (forgotten []*task) {
	if e.finished <= keptTasks {
		return nil
	}
	e.order = slices.DeleteFunc(e.order, func(t *task) bool {
		if e.finished <= keptTasks || !t.told {
			return false
		}
		e.finished--
		delete(e.tasks, t.id)
		forgotten = append(forgotten, t)
		return true
	})
	return forgotten
}

// publish tells everybody that a task has ended, unless that is so because the instance is being deactivated.
func (e *engine) publish(end *bashv1.TaskFinished) {
	data, err := proto.Marshal(end)
	if err != nil {
		e.Log().Error("task's end was not published", "task", end.GetTaskId(), "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(e.Done(), noticeLimit)
	defer cancel()
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 2*time.Second) {
		err = events.Publish(ctx, e.Conn(), bash.TopicTaskFinished, bash.FinishedKey(end.GetTaskId()), data)
		if err == nil {
			return
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
			break
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
	if e.Done().Err() == nil {
		e.Log().Warn("task's end was not published", "task", end.GetTaskId(), "error", err)
	}
}

// release ends the task's claim. To do so twice is harmless, and so for one that is not held: a lost task's.
func (e *engine) release(t *task) {
	ctx, cancel := context.WithTimeout(e.Done(), noticeLimit)
	defer cancel()
	if err := e.Release(ctx, bash.Seam, t.id); err != nil && e.Done().Err() == nil {
		e.Log().Warn("claim was not released", "task", t.id, "error", err)
	}
}

// kill ends the task and reports whether it was running.
func (t *task) kill() bool {
	if t.ended() || hasEnded(t.command.pid) {
		return false
	}
	t.killed.Store(true)
	t.command.requestKill()
	return true
}
