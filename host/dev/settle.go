package dev

import "time"

// settle is a timer that fires when a burst of events is over: some quiet after the last event, but not long after the first. It
// belongs to one goroutine.
type settle struct {
	quiet, longest time.Duration
	first          time.Time // of the burst; zero: there is none
	timer          *time.Timer
}

func newSettle(quiet, longest time.Duration) *settle {
	s := &settle{quiet: quiet, longest: longest, timer: time.NewTimer(0)}
	s.timer.Stop()
	return s
}

// C gets a value at the end of a burst. Whoever received it calls done, or event to prolong the burst.
func (s *settle) C() <-chan time.Time { return s.timer.C }

// event begins a burst or prolongs it.
func (s *settle) event() { s.wait(s.quiet) }

// wait is event with another quiet.
func (s *settle) wait(quiet time.Duration) {
	now := time.Now()
	if s.first.IsZero() {
		s.first = now
	}
	s.timer.Reset(min(quiet, max(0, s.first.Add(s.longest).Sub(now))))
}

// overdue tells whether the burst cannot be prolonged.
func (s *settle) overdue() bool { return !s.first.IsZero() && time.Since(s.first) >= s.longest }

// done ends the burst.
func (s *settle) done() {
	s.timer.Stop()
	s.first = time.Time{}
}
