package host

import (
	"errors"
	"fmt"

	"github.com/dsh-go/dsh/host/config"
)

// RowStatus is what a person wants to know of a row.
type RowStatus struct {
	ID     string
	Plugin string
	Phase  string
	// Generation counts the processes of the row.
	Generation int
	PID        int
	// Reason says what a pending row waits for, or why a row failed, with the place of the row.
	Reason   string
	Provides []string
	Injects  []string
}

// Status tells of all rows, in the order of the configuration. After Done it is empty.
func (h *Host) Status() []RowStatus {
	answer := make(chan []RowStatus, 1)
	h.post(func() {
		var list []RowStatus
		for _, r := range h.rows {
			list = append(list, r.status())
		}
		answer <- list
	})
	select {
	case list := <-answer:
		return list
	case <-h.done:
		return nil
	}
}

func (r *row) status() RowStatus {
	s := RowStatus{ID: r.ID, Plugin: r.Plugin, Phase: string(r.phase), Generation: r.generation}
	switch {
	case r.err != nil:
		s.Reason = reasonAt(r.Row, r.err)
	case r.waiting != "" && r.phase == pending:
		s.Reason = reasonAt(r.Row, errors.New(r.waiting))
	}
	if r.instance != nil && r.phase != starting && r.instance.process != nil {
		s.PID = r.instance.process.PID()
	}
	for _, p := range r.manifest.GetProvides() {
		s.Provides = append(s.Provides, p.GetSeam())
	}
	for _, i := range r.manifest.GetInjects() {
		s.Injects = append(s.Injects, i.GetSeam())
	}
	return s
}

// reasonAt puts the place of a row before an error that does not name one.
func reasonAt(r config.Row, err error) string {
	var placed *config.Error
	if errors.As(err, &placed) {
		return err.Error()
	}
	return fmt.Sprintf("%s: row %q: %v", r.Where, r.ID, err)
}
