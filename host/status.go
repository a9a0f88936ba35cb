package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/host/process"
)

// RowStatus is what a person wants to know of a row.
type RowStatus = control.Row

// Status tells of all rows, in the order of the configuration. After Done it is empty.
func (h *Host) Status() []RowStatus {
	answer := make(chan []RowStatus, 1)
	h.post(func() {
		var list []RowStatus
		for _, r := range h.rows {
			list = append(list, h.status(r))
		}
		answer <- list
	})
	select {
	case list := <-answer:
		for i := range list { // read off the host's goroutine: it is a file for each process
			list[i].RSS = process.RSS(list[i].PID)
			for j := range list[i].Retiring {
				list[i].Retiring[j].RSS = process.RSS(list[i].Retiring[j].PID)
			}
		}
		return list
	case <-h.done:
		return nil
	}
}

func (h *Host) status(r *row) RowStatus {
	s := RowStatus{
		ID: r.ID, Plugin: r.Plugin, Phase: string(r.phase), Since: r.since, Generation: r.generation, Restarts: r.restarts,
	}
	if s.Plugin == "" {
		s.Plugin = r.manifest.GetName()
	}
	switch {
	case r.err != nil:
		s.Reason = reasonAt(r.Row, r.err)
	case r.waiting != "" && r.phase == pending:
		s.Reason = reasonAt(r.Row, errors.New(r.waiting))
	case r.crash != "" && r.phase == restarting:
		s.Reason = reasonAt(r.Row, errors.New(r.crash))
	case r.swap != nil:
		s.Reason = "it is being replaced"
	}
	if r.instance != nil && r.phase != starting && r.instance.process != nil {
		s.PID = r.instance.process.PID()
	}
	for _, p := range r.manifest.GetProvides() {
		s.Provides = append(s.Provides, p.GetSeam())
		if p.GetContribution() {
			s.Contributes = append(s.Contributes, p.GetSeam())
		}
	}
	for _, i := range r.manifest.GetInjects() {
		s.Injects = append(s.Injects, i.GetSeam())
		if i.GetOptional() {
			s.Optional = append(s.Optional, i.GetSeam())
		}
	}
	for _, rt := range r.retiring {
		kept := control.Retiring{Generation: rt.generation, PID: rt.process.PID()}
		if t := rt.currentTarget(); t != nil {
			kept.KeptBy = h.router.Busy(t)
		}
		s.Retiring = append(s.Retiring, kept)
	}
	return s
}

// observe notes since when each row is in its phase.
func (h *Host) observe() {
	for _, r := range h.rows {
		if r.phase != r.seen {
			r.seen, r.since = r.phase, time.Now()
		}
	}
}

// reasonAt puts the place of a row before an error that does not name one.
func reasonAt(r config.Row, err error) string {
	var placed *config.Error
	if errors.As(err, &placed) {
		return err.Error()
	}
	return fmt.Sprintf("%s: row %q: %v", r.Where, r.ID, err)
}
