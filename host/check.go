package host

import (
	"errors"
	"slices"
)

// Report is what a check found.
type Report struct {
	Rows []RowStatus
	// Order are the rows in an order in which they can be activated.
	Order []string
	// Err joins everything that keeps a row from being activated.
	Err error
}

// Check starts the processes of a configuration, asks them for their manifests, plans, and stops them. Nothing is activated.
func Check(o Options) (*Report, error) {
	h, err := newHost(o)
	if err != nil {
		return nil, err
	}
	h.checking = true
	go h.run()
	<-h.settled
	report := &Report{}
	done := make(chan struct{})
	h.post(func() {
		report.Order = h.rehearse()
		for _, r := range h.rows {
			status := r.status()
			report.Rows = append(report.Rows, status)
			if status.Reason != "" {
				report.Err = errors.Join(report.Err, errors.New(status.Reason))
			}
		}
		close(done)
	})
	<-done
	h.Stop()
	<-h.done
	return report, nil
}

// rehearse plays the plan through as if every activation succeeded, and notes on the rows what it came to.
func (h *Host) rehearse() (order []string) {
	states := h.states()
	index := func(id string) int { return slices.IndexFunc(states, func(s rowState) bool { return s.id == id }) }
	for {
		d := plan(states, h.seams, false)
		for id, why := range d.fail {
			states[index(id)].phase = failed
			r := h.row(id)
			r.phase, r.err = failed, errors.New(why)
		}
		for _, id := range d.activate {
			states[index(id)].phase = active
			order = append(order, id)
		}
		if len(d.fail)+len(d.activate) > 0 {
			continue
		}
		for _, r := range h.rows {
			r.waiting = d.waiting[r.ID]
		}
		return order
	}
}
