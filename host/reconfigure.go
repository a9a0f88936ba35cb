package host

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// Change is what a change of the configuration came to, by row ids.
type Change = control.Change

// ReloadConfig reads the configuration again and brings the host to it, touching only rows whose entry changed. Either the new
// configuration stands in the end or the old one does; the error says which row is at fault, and why.
func (h *Host) ReloadConfig() (Change, error) {
	h.reconfiguring.Lock()
	defer h.reconfiguring.Unlock()
	<-h.settled // what still starts has the old entry
	next, err := h.options.Load()
	if err != nil {
		h.log.Error("configuration not changed: " + err.Error()) // nobody else says it when a save or a signal brought us here
		return Change{}, fmt.Errorf("the running configuration stays: %w", err)
	}
	t := &transition{host: h, next: next, diff: config.Diff(h.config, next), prepared: map[string]*instance{}}
	if err := t.run(); err != nil {
		h.log.Error("configuration not changed: " + err.Error())
		return Change{}, fmt.Errorf("the running configuration stays: %w", err)
	}
	h.config = next
	change := Change{Added: ids(t.diff.Added), Changed: ids(t.diff.Changed), Removed: ids(t.diff.Removed)}
	h.log.Info("configuration loaded", "added", change.Added, "changed", change.Changed, "removed", change.Removed)
	return change, nil
}

func ids(rows []config.Row) []string {
	list := make([]string, 0, len(rows))
	for _, r := range rows {
		list = append(list, r.ID)
	}
	return list
}

// transition takes a host from one configuration to the next. It runs in the goroutine of ReloadConfig and does what concerns the rows on
// the host's.
type transition struct {
	host     *Host
	next     *config.Config
	diff     config.Difference
	prepared map[string]*instance // by row id: started and described, not active
	undo     []func()             // takes back what was done, last in first out
}

func (t *transition) run() error {
	if err := t.prepare(); err != nil {
		t.discard()
		return err
	}
	var order []string
	var renamed map[string]string
	err := t.onHost(func() (err error) {
		renamed = t.renamed()
		order, err = t.rehearse()
		return err
	})
	if err != nil {
		t.discard()
		return err
	}
	for _, id := range order {
		if err := t.apply(id, renamed[id]); err != nil {
			t.rollBack()
			t.discard()
			return err
		}
	}
	t.finish()
	return nil
}

// onHost runs a function on the host's goroutine and waits for it.
func (t *transition) onHost(f func() error) error {
	answer := make(chan error, 1)
	t.host.post(func() { answer <- f() })
	select {
	case err := <-answer:
		return err
	case <-t.host.deaf:
		return errors.New("the host stops")
	}
}

// prepare starts a process for each new or changed row, all at once.
func (t *transition) prepare() error {
	var starting sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, entry := range slices.Concat(t.diff.Added, t.diff.Changed) {
		if entry.Disabled {
			continue
		}
		var i *instance
		if err := t.onHost(func() error { i = t.host.newInstance(entry); return nil }); err != nil {
			return err
		}
		starting.Go(func() {
			err := t.host.startInstance(i)
			mu.Lock()
			defer mu.Unlock()
			t.prepared[entry.ID] = i
			if err != nil {
				errs = append(errs, errors.New(reasonAt(entry, err)))
			}
		})
	}
	starting.Wait()
	return errors.Join(errs...)
}

// discard ends the processes that are not used.
func (t *transition) discard() {
	for _, i := range t.prepared {
		i.stop()
	}
}

// renamed pairs an added row with a removed one that provides the same seam: it is a replacement under another id. (On the host's
// goroutine.)
func (t *transition) renamed() map[string]string {
	pairs := map[string]string{}
	for _, added := range t.diff.Added {
		i := t.prepared[added.ID]
		if i == nil {
			continue
		}
		for _, removed := range t.diff.Removed {
			r := t.host.find(removed.ID)
			if r != nil && r.phase == active && shareSeam(r.manifest, i.manifest) {
				pairs[added.ID] = removed.ID
			}
		}
	}
	return pairs
}

func shareSeam(a, b *pluginv1.Manifest) bool {
	return slices.ContainsFunc(a.GetProvides(), func(p *pluginv1.Provide) bool {
		return !p.GetContribution() && provides(rowState{manifest: b}, &pluginv1.Inject{Seam: p.GetSeam(), Service: p.GetService()})
	})
}

// rehearse plays the new configuration through and returns the rows to touch, in an order in which they can be activated. (On the host's
// goroutine.)
func (t *transition) rehearse() ([]string, error) {
	h := t.host
	if h.stopping {
		return nil, errors.New("the host stops")
	}
	states := make([]rowState, 0, len(t.next.Rows))
	expected := map[string]bool{} // rows that must come up
	for _, entry := range t.next.Rows {
		s := rowState{id: entry.ID, phase: disabled}
		if i := t.prepared[entry.ID]; i != nil {
			s.phase, s.manifest = pending, i.manifest
			expected[entry.ID] = true
		} else if r := h.find(entry.ID); r != nil && !entry.Disabled {
			s.phase, s.manifest = pending, r.manifest
			if r.phase == failed {
				s.phase = failed
			}
			expected[entry.ID] = r.phase == active
		}
		states = append(states, s)
	}
	order, ends, why := rehearse(states, h.seams)
	for i, entry := range t.next.Rows {
		if expected[entry.ID] && ends[i] != active {
			return nil, errors.New(reasonAt(entry, errors.New(why[entry.ID])))
		}
	}
	touched := slices.DeleteFunc(order, func(id string) bool { return t.prepared[id] == nil })
	return touched, nil
}

// apply brings one row to its new entry, from that of the row was, which has another id when it is renamed.
func (t *transition) apply(id, was string) error {
	i := t.prepared[id]
	delete(t.prepared, id) // whatever comes of it, it is the row's now
	if was == "" {
		was = id
	}
	result := make(chan error, 1)
	err := t.onHost(func() error {
		r := t.host.find(was)
		switch {
		case r == nil:
			r = &row{Row: i.row, phase: disabled}
			t.host.rows = append(t.host.rows, r)
			t.undo = append(t.undo, func() { t.host.remove(r) })
			t.host.adopt(r, i)
			t.host.whenQuiet(func() { result <- r.activationError() })
		case r.phase == active && r.swap == nil:
			before := r.Row
			s := &swap{entry: i.row, old: r.instance, successor: i, began: time.Now()}
			s.done = func(_ Reload, err error) { result <- err }
			t.undo = append(t.undo, func() { t.host.replace(r, before, func(Reload, error) {}) })
			r.swap = s
			t.host.handOver(r, s)
		default:
			before := r.Row
			t.undo = append(t.undo, func() { t.host.startAnew(r, before) })
			t.host.adopt(r, i)
			t.host.whenQuiet(func() { result <- r.activationError() })
		}
		return nil
	})
	if err != nil {
		i.stop()
		return err
	}
	select {
	case err := <-result:
		return err
	case <-t.host.deaf:
		return errors.New("the host stops")
	}
}

func (t *transition) rollBack() {
	_ = t.onHost(func() error {
		for i := len(t.undo) - 1; i >= 0; i-- {
			t.undo[i]()
		}
		return nil
	})
}

// finish removes what the new configuration no longer has, and takes over its order.
func (t *transition) finish() {
	_ = t.onHost(func() error {
		h := t.host
		for _, r := range slices.Clone(h.rows) {
			i := slices.IndexFunc(t.next.Rows, func(entry config.Row) bool { return entry.ID == r.ID })
			switch {
			case i < 0:
				h.remove(r)
			case t.next.Rows[i].Disabled && r.phase != disabled:
				h.disable(r, t.next.Rows[i])
			default:
				r.Row = t.next.Rows[i] // its place may have changed
			}
		}
		for _, entry := range t.next.Rows {
			if h.find(entry.ID) == nil { // disabled from the start
				h.rows = append(h.rows, &row{Row: entry, phase: disabled})
			}
		}
		h.setOrder(t.next.Rows)
		h.tools.SetLimit(t.next.ToolTimeout)
		h.develop()
		return nil
	})
}

// ---- on the host's goroutine

func (h *Host) find(id string) *row {
	for _, r := range h.rows {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// adopt gives a row an instance that has described itself.
func (h *Host) adopt(r *row, i *instance) {
	h.dispose(r)
	r.Row, r.err, r.crashes, r.waiting, r.returning = i.row, nil, nil, "", false
	r.phase, r.instance, r.manifest = pending, i, i.manifest
	r.generation++
	h.expectHook(r)
	h.watch(r, i)
}

// activationError says why a row that was to be activated is not.
func (r *row) activationError() error {
	switch {
	case r.phase == active:
		return nil
	case r.err != nil:
		return errors.New(reasonAt(r.Row, r.err))
	default:
		return errors.New(reasonAt(r.Row, fmt.Errorf("it is %s: %s", r.phase, r.waiting)))
	}
}

// whenQuiet calls a function once no row is on its way.
func (h *Host) whenQuiet(f func()) { h.quiet = append(h.quiet, f) }

// remove takes a row out of the configuration: its work ends now.
func (h *Host) remove(r *row) {
	h.disable(r, r.Row)
	h.rows = slices.DeleteFunc(h.rows, func(other *row) bool { return other == r })
	h.forget(r.ID)
}

// forget drops what is kept under the id of a row that is gone.
func (h *Host) forget(id string) {
	h.events.Forget(id)
	h.tools.Forget(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.checkpoints, id)
}

// disable ends a row's instance, and those it has replaced, without a successor.
func (h *Host) disable(r *row, entry config.Row) {
	for _, name := range routes(r) {
		h.router.Remove(name)
	}
	h.tools.Remove(r.ID)
	if r.phase == active {
		i := r.instance
		h.retire(r, i, 0)
	} else {
		h.dispose(r)
	}
	r.Row, r.phase, r.instance, r.returning, r.waiting, r.err = entry, disabled, nil, false, "", nil
	for _, rt := range r.retiring {
		rt.end()
	}
}

// setOrder notes the places of the rows, for the tools.
func (h *Host) setOrder(rows []config.Row) {
	place := map[string]int{}
	for i, r := range rows {
		place[r.ID] = i
	}
	slices.SortStableFunc(h.rows, func(a, b *row) int { return place[a.ID] - place[b.ID] })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places = place
}

func (h *Host) place(row string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.places[row]
}
