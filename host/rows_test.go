package host

import (
	"testing"
	"time"
)

func TestPausesBeforeRestartsGrowUpToALimit(t *testing.T) {
	for crashes, least := range map[int]time.Duration{
		0: 0, 1: 0, 2: 500 * time.Millisecond, 3: time.Second, 4: 2 * time.Second, 5: 4 * time.Second,
		7: 16 * time.Second, 8: 30 * time.Second, 9: 30 * time.Second, 100: 30 * time.Second, 1 << 40: 30 * time.Second,
	} {
		for range 100 { // a part of it is chance
			if got := restartDelay(crashes); got < least || got > least+least/5 {
				t.Fatalf("%s after %d crashes, want from %s to a fifth more", got, crashes, least)
			}
		}
	}
}
