package host

import "errors"

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
		order, ends, why := rehearse(h.states(), h.seams)
		report.Order = order
		for i, r := range h.rows {
			if ends[i] == failed && r.phase != failed {
				r.phase, r.err = failed, errors.New(why[r.ID])
			}
			r.waiting = why[r.ID]
			status := h.status(r)
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
