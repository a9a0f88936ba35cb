package numbers_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-go/dsh/host/numbers"
)

func counters(t *testing.T, dir string) *numbers.Counters {
	t.Helper()
	c, err := numbers.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func next(t *testing.T, c *numbers.Counters, prefix string, want uint64) {
	t.Helper()
	if got, err := c.Next(prefix); err != nil || got != want {
		t.Errorf("got %d, %v, want %d", got, err, want)
	}
	if got, err := c.Last(prefix); err != nil || got != want {
		t.Errorf("the last is %d, %v, want %d", got, err, want)
	}
}

func TestNumbersGoOnForEachPrefix(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "claims")
	for name, c := range map[string]*numbers.Counters{"in files": counters(t, dir), "in memory": numbers.InMemory()} {
		t.Run(name, func(t *testing.T) {
			if last, err := c.Last("bash"); err != nil || last != 0 {
				t.Errorf("the last is %d, %v", last, err)
			}
			for n := range uint64(11) {
				next(t, c, "bash", n+1)
			}
			next(t, c, "agent", 1)
		})
	}
	next(t, counters(t, dir), "bash", 12)
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "bash"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

func TestHostsThatCountAtTheSameTimeGetDifferentNumbers(t *testing.T) {
	const each = 200
	dir := t.TempDir()
	var mu sync.Mutex
	var all sync.WaitGroup
	seen := map[uint64]bool{}
	for range 4 {
		c := counters(t, dir)
		all.Go(func() {
			for range each {
				n, err := c.Next("bash")
				mu.Lock()
				if err != nil || seen[n] {
					t.Errorf("%d again, or %v", n, err)
				}
				seen[n] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	next(t, counters(t, dir), "bash", 4*each+1)
}

func TestAFileWithoutANumberIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bash")
	if err := os.WriteFile(path, []byte("many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := counters(t, filepath.Dir(path))
	if _, err := c.Next("bash"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "many\n" {
		t.Errorf("it holds %q", text)
	}
}
