package executor

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// drainBytes is how much is still read after the shell's end when something goes on writing: no pipe holds more, so that all that
// the shell itself wrote is in it. A limit of time would lose output when the machine is busy.
const drainBytes = 1 << 20

// finishStderr is how much of the end of stderr a policy sees.
const finishStderr = 4 << 10

// command is a shell that was started. Its supervisor (supervise) owns how it ends; what that is may be read once done is closed.
type command struct {
	engine  *engine
	dir     string
	notes   []string
	finish  func(*bashv1.Exit, []byte) ([]string, error)
	pid     int // of the shell, its process group and its session
	mark    string
	slot    slot
	live    *live // nil for a background task
	started time.Time
	stdout  *output
	stderr  *output

	shellEnded chan struct{} // the shell has ended, at ended; it is not reaped yet
	ended      time.Time
	kill       chan struct{} // closed to kill it
	killOnce   sync.Once
	removed    atomic.Bool // it ran when the instance was deactivated

	done     chan struct{} // all below is set
	exit     *bashv1.Exit
	timedOut bool
	aborted  bool
	failure  error // the command never ran
}

// launch starts a process that was prepared and takes it over. limit 0: no time limit. launching is held shared, and the engine
// is not closed. Its error is a status.
func (e *engine) launch(p *Process, limit time.Duration, live *live) (*command, error) {
	defer p.close()
	e.mu.Lock()
	e.counter++
	n := e.counter
	e.mu.Unlock()
	c := &command{
		engine: e, dir: p.Dir, notes: p.Notes, finish: p.Finish, live: live, mark: fmt.Sprintf("%s-%d", e.mark, n),
		stdout: e.newOutput(n, 0), stderr: e.newOutput(n, 1),
		shellEnded: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
	}
	p.Env = append(p.Env, envMark+"="+c.mark)
	pidFD, err := c.spawn(p)
	if err != nil {
		e.shell.Store(nil)
		if p.Finish != nil {
			_, _ = p.Finish(nil, nil)
		}
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	c.slot = e.guard.add(c.pid)
	e.mu.Lock()
	e.commands[c] = struct{}{}
	e.outputs[c.stdout], e.outputs[c.stderr] = struct{}{}, struct{}{}
	e.mu.Unlock()
	e.work.Go(func() {
		awaitEnd(c.pid, pidFD)
		c.ended = time.Now()
		close(c.shellEnded)
	})
	e.work.Go(func() { c.pump(c.stdout) })
	e.work.Go(func() { c.pump(c.stderr) })
	e.work.Go(func() { c.supervise(limit) })
	return c, nil
}

// spawn opens the pipes and starts the process.
func (c *command) spawn(p *Process) (pidFD int, err error) {
	var files [2]uintptr
	for i, o := range []*output{c.stdout, c.stderr} {
		r, w, err := newPipe()
		if err != nil {
			if i > 0 {
				c.stdout.pipe.Close()
			}
			return -1, err
		}
		defer unix.Close(w)
		o.pipe, files[i] = r, uintptr(w)
	}
	descriptors := files[:]
	for _, f := range p.files {
		descriptors = append(descriptors, f.Fd())
	}
	c.started = time.Now()
	c.pid, pidFD, err = c.engine.spawner.start(p, descriptors...)
	if err != nil {
		c.stdout.pipe.Close()
		c.stderr.pipe.Close()
	}
	return pidFD, err
}

// requestKill makes the supervisor kill the command.
func (c *command) requestKill() { c.killOnce.Do(func() { close(c.kill) }) }

// supervise waits for the end of the shell, brings it about when the time is up or someone asks for it, and sets how it was.
func (c *command) supervise(limit time.Duration) {
	e := c.engine
	var timeUp <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeUp = timer.C
	}
	select {
	case <-c.shellEnded:
	case <-timeUp:
		// After a suspension both may be due: a result that is there wins.
		if c.timedOut = !hasEnded(c.pid); c.timedOut {
			c.chase()
		}
	case <-c.kill:
		if c.aborted = !hasEnded(c.pid); c.aborted {
			c.chase()
		}
	case <-e.closing:
		<-e.dead
	}
	<-c.shellEnded
	c.aborted = c.aborted || c.removed.Load() && !c.timedOut
	c.drain()
	c.reap()
	if c.finish != nil {
		notes, err := c.finish(c.exit, c.stderr.end(finishStderr))
		c.notes, c.failure = append(c.notes, notes...), asStatus(err)
		if c.failure != nil {
			e.shell.Store(nil)
		}
	}
	close(c.done)
}

// chase kills the command with everything it started. The shell stays unreaped until it returns.
func (c *command) chase() {
	left := c.engine.chase(&commandFamily{group: c.pid, mark: c.mark}, c.shellEnded)
	if left > 0 {
		c.engine.Log().Error("processes of a command cannot be killed", "shell", c.pid, "count", left)
	}
}

// reap takes the shell's exit and ends the supervision of its group.
func (c *command) reap() {
	e := c.engine
	e.mu.Lock()
	delete(e.commands, c)
	e.mu.Unlock()
	ws := reapChild(c.pid)
	c.exit = &bashv1.Exit{}
	if ws.Signaled() {
		c.exit.Signal = unix.SignalName(ws.Signal())
		if c.exit.GetSignal() == "" {
			c.exit.Signal = fmt.Sprintf("signal %d", int(ws.Signal()))
		}
	} else {
		c.exit.Code = int32(ws.ExitStatus())
	}
	e.addStraggler(c.pid, c.slot)
}

// drain waits until what the shell left in the pipes is read, and ends the streams.
func (c *command) drain() {
	c.stdout.hurry()
	c.stderr.hurry()
	<-c.stdout.drained
	<-c.stderr.drained
	c.stdout.finish()
	c.stderr.finish()
	if c.live != nil {
		c.live.end()
	}
}

// output is one of the two outputs of a command and the pipe it comes through. Its reader outlives the command as long as someone
// holds the other end of the pipe.
type output struct {
	stream
	index   int // 0: stdout, 1: stderr
	pipe    *os.File
	hurried atomic.Bool   // the shell has ended
	drained chan struct{} // closed by the reader at the end of the pipe, or when after hurry it was empty or enough has come
}

func (e *engine) newOutput(n uint64, index int) *output {
	name := [...]string{"stdout", "stderr"}[index]
	return &output{
		stream: stream{limit: e.options.OutputLimit, spill: e.spills.spill(n, name)},
		index:  index, drained: make(chan struct{}),
	}
}

// hurry makes the reader close drained soon: the flag is for one that reads, the deadline wakes one that waits.
func (o *output) hurry() {
	o.hurried.Store(true)
	_ = o.pipe.SetReadDeadline(time.Unix(1, 0))
}

// readBuffers are shared by all readers; one that waits holds none.
var readBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// pump reads a pipe to its end, whatever becomes of the command meanwhile.
func (c *command) pump(o *output) {
	defer func() {
		c.engine.mu.Lock()
		delete(c.engine.outputs, o)
		c.engine.mu.Unlock()
		o.pipe.Close()
	}()
	var drained sync.Once
	defer drained.Do(func() { close(o.drained) })
	raw, err := o.pipe.SyscallConn()
	if err != nil {
		return
	}
	wide := false
	late := 0 // bytes since the hurry
	for {
		err := raw.Read(func(fd uintptr) (ended bool) {
			buf := readBuffers.Get().(*[256 << 10]byte)
			defer readBuffers.Put(buf)
			for {
				hurried := o.hurried.Load() // before the read: what it finds is all that was there
				n, err := unix.Read(int(fd), buf[:])
				switch {
				case n > 0:
					o.write(buf[:n])
					if c.live != nil {
						c.live.write(o.index, buf[:n])
					}
					if n >= usualPipe && !wide {
						wide = true
						widen(fd)
					}
					if hurried {
						if late += n; late >= drainBytes {
							drained.Do(func() { close(o.drained) })
						}
					}
				case err == unix.EINTR:
				case err == unix.EAGAIN:
					if hurried {
						drained.Do(func() { close(o.drained) })
					}
					return false
				default:
					return true
				}
			}
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		_ = o.pipe.SetReadDeadline(time.Time{})
	}
}
