package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/dev"
	"github.com/dsh-go/dsh/host/router"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// The services of the contributions that the host itself uses.
var (
	providerService = toolsv1.ToolProvider_ServiceDesc.ServiceName
	hookService     = toolsv1.ToolHook_ServiceDesc.ServiceName
)

// row is an entry of the configuration and what has become of it.
type row struct {
	config.Row
	phase      phase
	generation int
	instance   *instance          // nil: no process
	manifest   *pluginv1.Manifest // of the last instance that described itself
	err        error              // why it failed
	waiting    string             // what it is pending for
	returning  bool               // see rowState
	crashes    []time.Time        // of the last minute
	crash      string             // how the last instance died
	restarts   int                // after crashes
	seen       phase              // the phase that since is about
	since      time.Time
	swap       *swap      // nil: its instance is not being replaced
	retiring   []*retiree // replaced, but not done
	built      string     // in dev mode: the program that was built last
	change     dev.Result // what was built since the instance was started, and of which files
	stale      bool       // and nobody has looked whether it is the one that runs
}

func (r *row) inTransition() bool {
	return r.phase == starting || r.phase == activating || r.phase == deactivating || r.phase == restarting
}

func (r *row) hasProcess() bool { return r.instance != nil || r.swap != nil }

// fail takes a row out of service until someone changes something.
func (h *Host) fail(r *row, err error) {
	if r.phase == failed {
		return
	}
	h.log.Error("row failed: " + reasonAt(r.Row, err))
	r.phase, r.err, r.returning = failed, err, false
	for _, name := range routes(r) {
		h.router.Down(name, fmt.Sprintf("row %q failed: %v", r.ID, err))
	}
	h.tools.Remove(r.ID)
	h.dispose(r)
}

// dispose ends what is left of a row's instance.
func (h *Host) dispose(r *row) {
	if i := r.instance; i != nil {
		r.instance = nil
		h.do(func() error { i.stop(); return nil }, func(error) {})
	}
}

// start starts a process for a row.
func (h *Host) start(r *row) {
	i := h.newInstance(r.Row)
	r.phase, r.instance = starting, i
	r.generation++
	h.do(func() error { return h.startInstance(i) }, func(err error) {
		switch {
		case err != nil && h.stopping: // it was given up, whatever its error
			h.end(r)
		case err != nil:
			if i.manifest != nil { // its configuration is at fault: what it would be is known, and a hook must not be passed over
				r.manifest = i.manifest
				h.expectHook(r)
			}
			h.failOrRestart(r, err)
		default:
			r.phase, r.manifest = pending, i.manifest
			h.expectHook(r)
			h.watch(r, i)
		}
	})
}

// expectHook makes a row that is a hook rule over calls from now on: until it is active, every call is refused.
func (h *Host) expectHook(r *row) {
	if offers(rowState{manifest: r.manifest}, "tool-hook") {
		h.tools.AddHook(r.ID, h.router.Conn(hookService, r.ID))
	}
}

func (h *Host) newInstance(entry config.Row) *instance {
	h.next++
	return &instance{row: entry, number: h.next, host: h, log: h.log.Named(entry.ID)}
}

// startInstance starts an instance's process, after its program has been built. It may be called from any goroutine.
func (h *Host) startInstance(i *instance) error {
	argv, err := h.argv(i)
	if err != nil {
		return err
	}
	return i.start(h.starts, argv, pluginEnv(h.options.Env, i.row.Env))
}

// watch waits for the end of a process.
func (h *Host) watch(r *row, i *instance) {
	h.work.Go(func() {
		<-i.process.Exited()
		report := i.process.Report()
		h.post(func() {
			for _, rt := range r.retiring {
				if t := i.currentTarget(); rt.instance == i && t != nil && h.router.Busy(t) != "" {
					h.log.Error("a replaced instance died before its work was done: "+report, "row", r.ID)
				}
			}
			if r.instance == i && !h.killed && (!h.stopping || r.phase != deactivating) {
				r.returning = r.returning || r.phase == active
				h.crashed(r, fmt.Errorf("the process died: %s", report))
			}
		})
	})
}

// failOrRestart deals with an instance that did not come up: one that had been up is tried again.
func (h *Host) failOrRestart(r *row, err error) {
	if r.returning {
		h.crashed(r, err)
		return
	}
	h.fail(r, err)
}

// crashed starts a row again: at once, then after longer and longer pauses; a row that keeps crashing fails.
func (h *Host) crashed(r *row, err error) {
	if h.stopping {
		h.end(r)
		return
	}
	now := time.Now()
	r.crashes = append(slices.DeleteFunc(r.crashes, func(t time.Time) bool { return now.Sub(t) > crashWindow }), now)
	if len(r.crashes) >= maxCrashes {
		h.fail(r, fmt.Errorf("crashed %d times within %s; the last time: %w", maxCrashes, crashWindow, err))
		return
	}
	if h.fallBack(r, err) {
		return
	}
	r.crash = err.Error()
	r.restarts++
	if r.instance != nil {
		r.instance.withdraw()
	}
	h.dispose(r)
	r.phase = restarting
	delay := restartDelay(len(r.crashes))
	for _, name := range routes(r) {
		if delay == 0 {
			h.router.Hold(name)
		} else {
			h.router.Down(name, fmt.Sprintf("row %q crashed and is started again in %s: %v", r.ID, delay.Round(time.Millisecond), err))
		}
	}
	if delay == 0 {
		h.log.Error("row crashed, it is started again: " + reasonAt(r.Row, err))
		h.start(r)
		return
	}
	h.log.Error("row crashed, it is started again in " + delay.Round(time.Millisecond).String() + ": " + reasonAt(r.Row, err))
	h.do(func() error {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-h.starts.Done():
		}
		return nil
	}, func(error) {
		if r.phase == restarting && !h.stopping {
			for _, name := range routes(r) {
				h.router.Hold(name)
			}
			h.start(r)
		}
	})
}

// fallBack takes the instance that the crashed one has replaced just now back into service, if it is still there.
func (h *Host) fallBack(r *row, cause error) bool {
	i := slices.IndexFunc(r.retiring, func(rt *retiree) bool { return rt.onProbation(time.Now()) })
	if i < 0 || r.swap != nil {
		return false
	}
	old := r.retiring[i]
	h.log.Error("the new instance crashed at once, the old one serves again: " + reasonAt(r.Row, cause))
	old.takeBack()
	if r.instance != nil {
		r.instance.withdraw()
	}
	h.dispose(r)
	r.phase, r.instance, r.manifest, r.Row = activating, old.instance, old.manifest, old.row
	for _, name := range routes(r) {
		h.router.Hold(name)
	}
	h.do(func() error { return old.resume(h.ctx) }, func(err error) {
		switch {
		case r.instance != old.instance:
		case err != nil:
			h.log.Warn("the old instance cannot be resumed and is started anew", "row", r.ID, "error", err)
			r.instance, r.returning = nil, true
			h.retire(r, old.instance, 0)
			h.start(r)
		default:
			r.phase, r.returning = active, false
			h.serveAgain(r, old.instance)
		}
	})
	return true
}

// serveAgain lets an instance serve that was resumed.
func (h *Host) serveAgain(r *row, i *instance) {
	i.route()
	h.do(func() error {
		ctx, cancel := context.WithTimeout(h.ctx, activateTimeout)
		defer cancel()
		return i.contribute(ctx)
	}, func(err error) {
		if err != nil && r.instance == i { // its end is reported elsewhere
			h.log.Warn("the tools of the old instance are not known again", "row", r.ID, "error", err)
		}
	})
}

const (
	// crashWindow and maxCrashes: a row that crashes so often within so long fails.
	crashWindow = time.Minute
	maxCrashes  = 5
	// firstPause is the pause before the second restart in a row; each further one is twice as long, up to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
)

// restartDelay is the pause after the nth crash in a row, with up to a fifth more, so that rows do not move in step.
func restartDelay(crashes int) time.Duration {
	if crashes <= 1 {
		return 0
	}
	pause := min(firstPause<<min(crashes-2, 10), maxPause)
	return pause + rand.N(pause/5)
}

// routes are the names under which the router knows a row.
func routes(r *row) []string { return routeNames(r.manifest, r.ID) }

func routeNames(m *pluginv1.Manifest, row string) []string {
	var names []string
	for _, s := range m.GetProvides() {
		if s.GetContribution() {
			names = append(names, router.Contribution(s.GetService(), row))
		} else {
			names = append(names, s.GetService())
		}
	}
	return names
}

func (h *Host) activate(r *row) {
	i := r.instance
	r.phase = activating
	generation, checkpoint, crash := r.generation, h.checkpoint(r.ID, i), r.crash
	h.do(func() error {
		return i.activate(h.starts, generation, checkpoint, crash)
	}, func(err error) {
		switch {
		case r.instance != i: // it died meanwhile
		case err != nil && h.stopping:
			h.end(r)
		case err != nil:
			h.failOrRestart(r, err)
		default:
			r.phase, r.returning, r.crash = active, false, ""
			h.log.Debug("row is active", "row", r.ID, "generation", generation, "pid", i.process.PID())
			h.catchUp(r)
		}
	})
}

func (h *Host) deactivate(r *row) {
	i := r.instance
	r.phase = deactivating
	limit := deactivateTimeout
	if h.stopping {
		limit = shutdownTimeout
	}
	for _, name := range routes(r) {
		h.router.Remove(name)
	}
	h.tools.Remove(r.ID)
	h.do(func() error {
		return i.deactivate(h.ctx, limit)
	}, func(err error) {
		if err != nil {
			h.log.Warn("deactivation was not clean", "row", r.ID, "error", err)
		}
		if r.instance != i {
			return
		}
		r.phase = pending
		if h.stopping {
			h.end(r)
		}
	})
}

// end ends the process of a row.
func (h *Host) end(r *row) {
	i := r.instance
	r.phase = stopped
	if i == nil {
		return
	}
	killed := h.killed
	h.do(func() error {
		if killed && i.process != nil {
			i.process.Kill()
		}
		i.stop()
		return nil
	}, func(error) { r.instance = nil })
}

// argv is the command line of an instance's program.
func (h *Host) argv(i *instance) ([]string, error) {
	r := i.row
	switch {
	case r.Source != "" || h.options.Dev && len(r.Build) > 0:
		if !i.isBuilt {
			program, err := dev.Build(h.starts, source(r))
			if err != nil {
				return nil, err
			}
			i.program = program
		}
		if r.Source != "" {
			return []string{i.program}, nil
		}
		return r.Command, nil
	case len(r.Command) > 0:
		return r.Command, nil
	}
	argv, ok := h.options.Builtin(r.Plugin)
	if !ok {
		return nil, fmt.Errorf("no built-in plugin %q%s", r.Plugin, config.Suggest(r.Plugin, h.options.Builtins))
	}
	return argv, nil
}
