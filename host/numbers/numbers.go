// Package numbers allots the numbers in the keys of claims: none comes twice, also not from another host or a later one.
package numbers

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Counters count from 1, one for each prefix of keys. mu guards counts.
type Counters struct {
	dir string // of a file for each prefix; empty: they count in memory

	mu     sync.Mutex
	counts map[string]uint64
}

// New returns counters that go on for ever, in files of a directory that hosts share; it is made when it is missing.
func New(dir string) (*Counters, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the counters: %w", err)
	}
	return &Counters{dir: dir}, nil
}

// InMemory returns counters that begin anew.
func InMemory() *Counters { return &Counters{counts: map[string]uint64{}} }

// Next allots the next number. The prefix is a plain file name. It is in the file, but not synced, when Next returns: a power failure
// may let the numbers of the last seconds come again.
func (c *Counters) Next(prefix string) (uint64, error) { return c.add(prefix, 1) }

// Last is the number that was allotted last; 0: none was.
func (c *Counters) Last(prefix string) (uint64, error) { return c.add(prefix, 0) }

func (c *Counters) add(prefix string, n uint64) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		c.counts[prefix] += n
		return c.counts[prefix], nil
	}
	path := filepath.Join(c.dir, prefix)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", prefix, err)
	}
	defer file.Close() // and with it the lock
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return 0, fmt.Errorf("count %s: lock %s: %w", prefix, path, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, 64))
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", prefix, err)
	}
	count := uint64(0)
	if len(text) > 0 {
		if count, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return 0, fmt.Errorf("count %s: %s holds no number; write one into it that is larger than those in use", prefix, path)
		}
	}
	if n == 0 {
		return count, nil
	}
	count += n
	if _, err := file.WriteAt(fmt.Appendf(nil, "%d\n", count), 0); err != nil { // never shorter than what it replaces
		return 0, fmt.Errorf("count %s: %w", prefix, err)
	}
	return count, nil
}
