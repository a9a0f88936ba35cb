package executor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/events"
)

// Options are the limits of an executor. A zero value means the default.
type Options struct {
	// Shell is the bash to run: a path, or a name that is looked up in PATH. Default: bash.
	Shell string
	// Cwd is the working directory of commands that have neither a session nor one of their own. Default: the process's.
	Cwd string
	// Timeout is the time limit of a foreground command that names none. Default: 2 minutes.
	Timeout time.Duration
	// MaxTimeout is the largest time limit; what asks for more gets this. Default: 10 minutes.
	MaxTimeout time.Duration
	// KillGrace is the time between SIGTERM and SIGKILL. Default: 3 seconds.
	KillGrace time.Duration
	// OutputLimit is how many bytes of each stream are kept in memory. Default: 64000.
	OutputLimit int
	// SpillLimit is how many bytes of each stream a spill file takes. Default: 64 MiB.
	SpillLimit int64
	// KeepEnv are names of environment variables that commands inherit although their names look like secrets.
	KeepEnv []string
	// Policy sees each process before it is started. Default: none.
	Policy Policy
}

// Policy decides how a command is started: it may change the process, or refuse it with an error that the model may read. It is
// called from many goroutines.
type Policy func(*Process) error

func (o *Options) setDefaults() error {
	if o.Shell == "" {
		o.Shell = "bash"
	}
	if o.Cwd == "" {
		cwd, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("find the working directory: %w; set one in the configuration", err)
		}
		o.Cwd = cwd
	}
	if !filepath.IsAbs(o.Cwd) {
		return fmt.Errorf("the working directory must be an absolute path: %s", o.Cwd)
	}
	setDefault(&o.Timeout, 2*time.Minute)
	setDefault(&o.MaxTimeout, 10*time.Minute)
	setDefault(&o.KillGrace, 3*time.Second)
	setDefault(&o.OutputLimit, 64000)
	setDefault(&o.SpillLimit, 64<<20)
	o.Timeout = min(o.Timeout, o.MaxTimeout)
	return nil
}

func setDefault[N int | int64 | time.Duration](value *N, fallback N) {
	if *value <= 0 {
		*value = fallback
	}
}

// hurriedGrace is the grace period once the host stops.
const hurriedGrace = 500 * time.Millisecond

// keptTasks is how many finished tasks are kept for reading.
const keptTasks = 1000

// Injects is what the manifest of an executor injects: the events, to tell that tasks have ended, and its own seam, to give them to its
// successor.
func Injects() []sdk.Injection {
	return []sdk.Injection{events.Seam.Optional(), bash.Seam.Optional()}
}

// Serve serves the bash seam for the instance. Call it during activation.
func Serve(c *sdk.Context, o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	mark := make([]byte, 12)
	rand.Read(mark)
	e := &engine{
		Context: c, options: o, mark: hex.EncodeToString(mark),
		env:        inheritedEnv(os.Environ(), o.KeepEnv),
		commands:   map[*command]struct{}{},
		outputs:    map[*output]struct{}{},
		stragglers: map[int]slot{},
		tasks:      map[string]*task{},
		elsewhere:  map[string]savedTask{},
		closing:    make(chan struct{}),
		dead:       make(chan struct{}),
	}
	e.spills = spills{dir: filepath.Join(os.TempDir(), "dsh-bash-"+e.mark), limit: o.SpillLimit}
	if err := prepareProcess(); err != nil {
		return err
	}
	unignoreSignals()
	e.checkpoint.keep = c.Checkpoint
	var err error
	if e.spawner, err = newSpawner(); err != nil {
		return fmt.Errorf("set up the start of commands: %w", err)
	}
	if e.guard, err = startGuard(e.spawner, e.mark, e.spills.dir, c.Log()); err != nil {
		e.spawner.close()
		return fmt.Errorf("start the guard of the commands: %w", err)
	}
	c.Effect("executor", e.close)
	c.Go("commands", e.run)
	if len(c.Restored()) > 0 {
		untold := e.restore()
		c.Go("lost tasks", func(context.Context) error {
			e.tellLost(untold)
			return nil
		})
	}
	events.Subscribe(c, e.claimLost, api.TopicClaimLost)
	c.OnRetire(e.retire)
	c.OnResume(e.resume)
	bashv1.RegisterBashServer(c, &server{engine: e})
	return nil
}

// unignoreSignals gives commands the default dispositions also when this process was started with ignored signals, as by nohup: a shell
// cannot undo that, and a command that a signal should end would go on. A signal that is caught is default in a child.
func unignoreSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// engine is one executor. Its goroutine (run) reaps orphans while the instance is active and then kills every command.
type engine struct {
	*sdk.Context
	options Options
	mark    string                 // what the marks of all its commands begin with
	env     []string               // what commands inherit
	shell   atomic.Pointer[string] // where it was found
	spawner *spawner
	guard   *guard
	spills  spills
	scans   scans

	checkpoint checkpoint
	saving     atomic.Bool // it will be saved soon

	closing chan struct{}  // closed when no command is taken any more and all are being killed
	dead    chan struct{}  // closed when every command is dead
	work    sync.WaitGroup // the goroutines of commands and tasks

	// launching is held shared while a process is started and entered in commands, and alone to set closed.
	launching sync.RWMutex
	closed    bool

	mu         sync.Mutex
	counter    uint64                // of commands
	commands   map[*command]struct{} // whose supervision has not ended
	outputs    map[*output]struct{}  // that are still read
	stragglers map[int]slot          // process groups whose shell has ended, by number
	tasks      map[string]*task
	elsewhere  map[string]savedTask // that run in executors which have been replaced, by their ids
	order      []*task              // oldest first
	finished   int                  // of them, those that have ended and been told
	retired    bool
}

// grace is the time between SIGTERM and SIGKILL now.
func (e *engine) grace() time.Duration {
	if e.Hurrying() {
		return min(e.options.KillGrace, hurriedGrace)
	}
	return e.options.KillGrace
}

// close undoes what Serve set up, after run has ended.
func (e *engine) close(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.work.Wait()
		e.guard.close()
		e.spawner.close()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("wait for the commands' end: %w", ctx.Err())
	}
	return e.spills.remove()
}
