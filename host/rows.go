package host

import (
	"fmt"

	"github.com/dsh-go/dsh/host/config"
)

// row is an entry of the configuration and what has become of it.
type row struct {
	config.Row
	phase      phase
	generation int
	instance   *instance // nil: no process
	err        error     // why it failed
	waiting    string    // what it is pending for
}

func (r *row) inTransition() bool {
	return r.phase == starting || r.phase == activating || r.phase == deactivating
}

func (h *Host) fail(r *row, err error) {
	if r.phase == failed {
		return
	}
	h.log.Error("row failed: " + reasonAt(r.Row, err))
	r.phase, r.err = failed, err
	if r.instance != nil && !h.stopping {
		i := r.instance
		h.do(func() error { i.stop(); return nil }, func(error) {
			if r.instance == i && h.stopping {
				r.instance = nil
			}
		})
	}
}

// start starts the process of a row.
func (h *Host) start(r *row) {
	argv, err := h.argv(r.Row)
	if err != nil {
		r.phase, r.err = failed, &config.Error{Where: r.Where, Message: fmt.Sprintf("row %q: %v", r.ID, err)}
		h.log.Error("row failed: " + r.err.Error())
		return
	}
	h.next++
	i := &instance{row: r.Row, number: h.next, host: h, log: h.log.Named(r.ID)}
	r.phase, r.instance = starting, i
	h.do(func() error {
		return i.start(h.starts, argv, pluginEnv(h.options.Env, r.Env))
	}, func(err error) {
		switch {
		case err != nil && h.stopping: // it was given up, whatever its error
			h.end(r)
		case err != nil:
			h.fail(r, err)
		default:
			r.phase = pending
			if offers(rowState{manifest: i.manifest}, "tool-hook") {
				h.tools.ExpectHook(r.ID)
			}
			h.watch(r, i)
		}
	})
}

// watch waits for the end of a process.
func (h *Host) watch(r *row, i *instance) {
	h.work.Add(1)
	go func() {
		defer h.work.Done()
		<-i.process.Exited()
		h.post(func() { h.died(r, i) })
	}()
}

// died deals with a process that ended by itself.
func (h *Host) died(r *row, i *instance) {
	if r.instance != i || r.phase == stopped || r.phase == failed || h.killed || h.stopping && r.phase == deactivating {
		return
	}
	i.withdraw()
	h.fail(r, fmt.Errorf("the process died: %s", i.process.Report()))
}

func (h *Host) activate(r *row) {
	i := r.instance
	r.phase = activating
	r.generation++
	generation, checkpoint := r.generation, h.checkpoint(r.ID)
	h.do(func() error {
		return i.activate(h.starts, generation, checkpoint)
	}, func(err error) {
		switch {
		case r.phase != activating: // it died meanwhile
		case err != nil && h.stopping:
			h.end(r)
		case err != nil:
			h.fail(r, err)
		default:
			r.phase = active
			h.log.Debug("row is active", "row", r.ID, "pid", i.process.PID())
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
	h.do(func() error {
		return i.deactivate(h.ctx, limit)
	}, func(err error) {
		if err != nil {
			h.log.Warn("deactivation was not clean", "row", r.ID, "error", err)
		}
		if r.phase != deactivating {
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

// argv is the command line of a row's program.
func (h *Host) argv(r config.Row) ([]string, error) {
	if len(r.Command) > 0 {
		return r.Command, nil
	}
	argv, ok := h.options.Builtin(r.Plugin)
	if !ok {
		return nil, fmt.Errorf("no built-in plugin %q%s", r.Plugin, config.Suggest(r.Plugin, h.options.Builtins))
	}
	return argv, nil
}
