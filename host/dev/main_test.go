package dev

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Go's own cache is below $XDG_CACHE_HOME too: it must stay where it is when a test moves that.
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			fmt.Fprintln(os.Stderr, "go env:", err)
			os.Exit(1)
		}
		os.Setenv(name, strings.TrimSpace(string(out)))
	}
	os.Setenv("GOFLAGS", "")
	os.Setenv("GOWORK", "")
	cache, err := os.MkdirTemp("", "dsh-dev-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("XDG_CACHE_HOME", cache)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(cache)
		os.Exit(code)
	}))
}

// patience is how long a test waits for what must happen; the first build of all may find an empty cache.
const patience = 2 * time.Minute

// onlyEvents is the timing of a Watcher that sees nothing without an event; slow, for a test's scripts may be slow on a busy machine.
var onlyEvents = timing{quiet: 200 * time.Millisecond, longest: 3 * time.Second, empty: 800 * time.Millisecond, poll: time.Hour, idle: time.Hour}

// tempDir is a temporary directory by its real path.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shell runs a script in a directory.
func shell(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("bash", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// logBuffer is a log that a test can wait for.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func newLog() (*logBuffer, hclog.Logger) {
	b := &logBuffer{news: make(chan struct{}, 1)}
	return b, hclog.New(&hclog.LoggerOptions{Output: b, Level: hclog.Debug})
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) waitFor(t *testing.T, part string) {
	t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(b.String(), part) {
		select {
		case <-b.news:
		case <-deadline:
			t.Fatalf("the log never had %q:\n%s", part, b)
		}
	}
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

// waitUntil looks again and again.
func waitUntil(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		if <-tick.C; time.Now().After(deadline) {
			t.Fatalf("waited %v until %s", patience, what)
		}
	}
}
