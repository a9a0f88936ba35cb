package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/host/dev"
	"github.com/dsh-go/dsh/host/router"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// retireTimeout is how long an instance has to let go of what its successor needs.
const retireTimeout = 5 * time.Second

// Reload is what a reload came to.
type Reload = control.Reload

// Reload replaces the instance of a row by a new one, started from the row's program as it is now. Calls are held meanwhile. On error the
// old instance serves as before. A row without an active instance is started anew.
func (h *Host) Reload(id string) (Reload, error) {
	type outcome struct {
		Reload
		error
	}
	answer := make(chan outcome, 1)
	h.post(func() {
		i := slices.IndexFunc(h.rows, func(r *row) bool { return r.ID == id })
		if i < 0 {
			answer <- outcome{error: fmt.Errorf("no row %q", id)}
			return
		}
		r := h.rows[i]
		h.replace(r, r.Row, func(result Reload, err error) { answer <- outcome{result, err} })
	})
	select {
	case o := <-answer:
		return o.Reload, o.error
	case <-h.done:
		return Reload{}, errors.New("the host has stopped")
	}
}

// swap is the replacement of a row's instance, on its way.
type swap struct {
	entry     config.Row
	old       *instance
	successor *instance
	began     time.Time
	held      time.Time // when calls were held
	result    Reload
	change    dev.Result // that led to it, in dev mode
	done      func(Reload, error)
	next      func() // what was asked for meanwhile; the newest wins
	supersede func() // tells whoever asked for next that a newer one took its place
}

// retiree is an instance that has been replaced: it stays for as long as something is left of its work.
type retiree struct {
	*instance
	takeBack func()    // ends the wait without ending the instance
	end      func()    // ends the wait and the instance, whatever is left of its work
	until    time.Time // it can be taken back before that
}

func (rt *retiree) onProbation(now time.Time) bool { return now.Before(rt.until) }

// What ends the wait for a retiree early.
var (
	errResumed = errors.New("it serves again")
	errRemoved = errors.New("its row is removed")
)

// replace starts a successor for the row's instance, from an entry that may differ from the present one.
func (h *Host) replace(r *row, entry config.Row, done func(Reload, error)) {
	switch {
	case h.stopping:
		done(Reload{}, errors.New("the host stops"))
	case r.swap != nil:
		if r.swap.next != nil {
			r.swap.supersede()
		}
		r.swap.next = func() { h.replace(r, entry, done) }
		r.swap.supersede = func() { done(Reload{}, errors.New("a newer reload took its place")) }
	case r.phase != active:
		h.startAnew(r, entry)
		done(Reload{Row: r.ID, Generation: r.generation}, nil)
	default:
		h.startSuccessor(r, &swap{entry: entry, old: r.instance, began: time.Now(), change: r.change, done: done})
		r.change = dev.Result{}
	}
}

// startAnew starts a row that has no active instance, whatever became of its last one.
func (h *Host) startAnew(r *row, entry config.Row) {
	if r.phase == starting || r.phase == activating || r.phase == deactivating {
		return // it starts already
	}
	h.dispose(r)
	r.Row, r.err, r.crashes, r.waiting = entry, nil, nil, ""
	h.start(r)
}

func (h *Host) startSuccessor(r *row, s *swap) {
	r.swap = s
	s.successor = h.newInstance(s.entry)
	if len(s.change.Changed) > 0 && sameSource(source(s.entry), source(r.Row)) {
		s.successor.program, s.successor.isBuilt = s.change.Program, true
	}
	h.do(func() error { return h.startInstance(s.successor) }, func(err error) {
		s.result.Started = time.Since(s.began)
		if err == nil {
			err = h.admit(r, s)
		}
		if err != nil {
			h.endSwap(r, err)
			return
		}
		h.handOver(r, s)
	})
}

// admit checks that the successor fits in where its predecessor is.
func (h *Host) admit(r *row, s *swap) error {
	if h.stopping {
		return errors.New("the host stops")
	}
	if r.instance != s.old || r.phase != active {
		return errors.New("the instance to replace died meanwhile")
	}
	states := h.states()
	for i := range states {
		if states[i].id == r.ID {
			states[i] = rowState{id: r.ID, phase: pending, manifest: s.successor.manifest, returning: true}
		}
	}
	return admissible(states, h.seams, r.ID)
}

// handOver holds the calls, lets the old instance let go, and activates the new one.
func (h *Host) handOver(r *row, s *swap) {
	s.held = time.Now()
	for _, name := range routes(r) {
		h.router.Hold(name)
	}
	generation := r.generation + 1
	row := r.ID
	h.do(func() error {
		ctx, cancel := context.WithTimeout(h.starts, retireTimeout)
		defer cancel()
		if err := s.old.retire(ctx, pluginv1.RetireRequest_REASON_RELOAD); err != nil {
			return err
		}
		return s.successor.activate(h.starts, generation, h.checkpoint(row, s.successor), "")
	}, func(err error) {
		s.result.Held = time.Since(s.held)
		if err == nil && h.stopping {
			err = errors.New("the host stops")
		}
		if err != nil {
			h.rollBack(r, s, err)
			return
		}
		r.generation = generation
		h.switchTo(r, s)
		h.endSwap(r, nil)
	})
}

// switchTo makes the successor the row's instance. Its activation has let the held calls go to it.
func (h *Host) switchTo(r *row, s *swap) {
	old, was := routes(r), r.ID
	r.Row, r.instance, r.manifest, r.crash = s.entry, s.successor, s.successor.manifest, ""
	for _, name := range old {
		if !slices.Contains(routes(r), name) {
			h.router.Remove(name)
		}
	}
	if was != r.ID {
		h.forget(was)
	} else if !offers(rowState{manifest: r.manifest}, "tool-provider") {
		h.tools.Remove(r.ID)
	}
	h.watch(r, s.successor)
	h.retire(r, s.old, h.config.Probation)
}

// rollBack takes the old instance back into service after its successor did not come up. One that cannot be resumed retires, and its
// program is started anew.
func (h *Host) rollBack(r *row, s *swap, cause error) {
	h.do(func() error {
		s.successor.stop()
		return s.old.resume(h.ctx)
	}, func(err error) {
		switch {
		case r.instance != s.old || h.stopping: // it died, and has been dealt with
		case err == nil:
			h.serveAgain(r, s.old)
		default:
			h.log.Warn("the old instance cannot be resumed and is started anew", "row", r.ID, "error", err)
			r.instance = nil
			r.returning = true
			h.retire(r, s.old, 0)
			h.start(r)
		}
		s.successor = nil
		h.endSwap(r, cause)
	})
}

// endSwap reports on a swap and goes on with what was asked for meanwhile.
func (h *Host) endSwap(r *row, err error) {
	s := r.swap
	r.swap = nil
	if err != nil && s.successor != nil && r.instance != s.successor {
		i := s.successor
		h.do(func() error { i.stop(); return nil }, func(error) {})
	}
	s.result.Row, s.result.Generation = r.ID, r.generation
	if err != nil {
		err = errors.New(reasonAt(s.entry, err))
	}
	switch {
	case err != nil && h.stopping:
		h.log.Debug("reload given up: the host stops", "row", r.ID)
	case err != nil:
		h.log.Error("reload failed, the old instance serves on: " + err.Error())
	default:
		told := []any{"row", r.ID, "generation", r.generation}
		if len(s.change.Changed) > 0 {
			told = append(told, "changed", shortNames(s.change.Changed), "built", s.change.Took.Round(10*time.Millisecond))
		}
		h.log.Info("reloaded", append(told, "started", s.result.Started.Round(time.Millisecond), "held", s.result.Held.Round(100*time.Microsecond))...)
	}
	s.done(s.result, err)
	if s.next != nil {
		s.next()
	}
}

// shortNames are the names of the first files, and how many more there are.
func shortNames(files []string) string {
	const most = 3
	var names []string
	for _, file := range files[:min(most, len(files))] {
		names = append(names, filepath.Base(file))
	}
	text := strings.Join(names, " ")
	if more := len(files) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// retire keeps a replaced instance until nothing is left of its work, and then ends it.
func (h *Host) retire(r *row, i *instance, atLeast time.Duration) {
	ctx, cancel := context.WithCancelCause(h.starts)
	rt := &retiree{i, func() { cancel(errResumed) }, func() { cancel(errRemoved) }, time.Now().Add(atLeast)}
	r.retiring = append(r.retiring, rt)
	h.ending++
	target := i.currentTarget()
	h.do(func() error {
		defer cancel(nil)
		waitForEnd(ctx, h.router, target, atLeast)
		if i.isGone() {
			for _, key := range h.router.Claims(target) {
				h.events.Announce(api.TopicClaimLost, key, []byte(i.process.Report()))
			}
		}
		if errors.Is(context.Cause(ctx), errResumed) {
			return errResumed
		}
		limit := deactivateTimeout
		switch {
		case h.starts.Err() != nil: // the host stops
			limit = shutdownTimeout
			_ = i.retire(h.ctx, pluginv1.RetireRequest_REASON_SHUTDOWN)
		case ctx.Err() != nil:
			_ = i.retire(h.ctx, pluginv1.RetireRequest_REASON_REMOVAL)
		}
		err := i.deactivate(h.ctx, limit)
		i.stop()
		return err
	}, func(err error) {
		h.ending--
		r.retiring = slices.DeleteFunc(r.retiring, func(other *retiree) bool { return other == rt })
		if err != nil && !errors.Is(err, errResumed) && !h.killed {
			h.log.Warn("the end of a replaced instance was not clean", "row", r.ID, "error", err)
		}
	})
}

// waitForEnd waits until a retired target has nothing left to do, or its process is gone.
func waitForEnd(ctx context.Context, routes *router.Router, t *router.Target, atLeast time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(atLeast)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Exited:
		return
	case <-ctx.Done():
		return
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		_ = routes.WaitIdle(ctx, t)
	}()
	select {
	case <-idle:
	case <-t.Exited:
		cancel()
		<-idle
	}
}
