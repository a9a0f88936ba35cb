package dev

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestABurstEndsAfterItsQuietButNotMuchLater(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		events []time.Duration // since the start
		ends   time.Duration
	}{
		{"one event", []time.Duration{0}, 100 * ms},
		{"each event prolongs it", []time.Duration{0, 90 * ms, 180 * ms}, 280 * ms},
		{"events without end are cut", []time.Duration{
			0, 99 * ms, 198 * ms, 297 * ms, 396 * ms, 495 * ms, 594 * ms, 693 * ms, 792 * ms, 891 * ms, 990 * ms,
		}, 1000 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSettle(100*ms, time.Second)
				for range 2 { // the second burst knows nothing of the first
					start := time.Now()
					for _, at := range c.events {
						time.Sleep(at - time.Since(start)) // on the bubble's clock, which it moves: no real time passes, and nothing is synchronised by it
						s.event()
					}
					<-s.C()
					if took := time.Since(start); took != c.ends {
						t.Errorf("the burst ended after %v, not %v", took, c.ends)
					}
					if s.overdue() != (c.ends == time.Second) {
						t.Errorf("overdue is %v after %v", s.overdue(), c.ends)
					}
					s.done()
				}
			})
		})
	}
}
