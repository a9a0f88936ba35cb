package agent

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestATurnWaitsForAFollowerThatIsFarBehind(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(s *session, f *follower, stop context.CancelFunc)
	}{
		{"until it has caught up", func(s *session, f *follower, _ context.CancelFunc) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f.offset = s.log.size - maxLag
			s.followerMoved()
		}},
		{"until it goes away", func(s *session, f *follower, _ context.CancelFunc) { s.closeFollower(f) }},
		{"until the turn is cancelled", func(_ *session, _ *follower, stop context.CancelFunc) { stop() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(&agent{}, "s", &eventLog{size: 10 << 20})
				turn, stop := context.WithCancel(t.Context())
				defer stop()
				far, near, ended := &follower{end: -1}, &follower{end: -1}, &follower{end: 5}
				s.follow(far, 1, s.log.size-maxLag-1)
				s.follow(near, 1, s.log.size)
				s.follow(ended, 1, 0) // of an earlier turn: nobody waits for it
				waited := make(chan struct{})
				go func() {
					defer close(waited)
					s.awaitFollowers(turn)
				}()
				synctest.Wait()
				select {
				case <-waited:
					t.Fatal("it does not wait")
				default:
				}
				tt.end(s, far, stop)
				<-waited
			})
		})
	}
}
