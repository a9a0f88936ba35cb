package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// longDir makes a directory whose path has 120 bytes.
func longDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	dir = filepath.Join(dir, strings.Repeat("d", 119-len(dir)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSocketsHaveShortPathsWhateverTheEnvironmentSays(t *testing.T) {
	long := longDir(t)
	t.Setenv("XDG_RUNTIME_DIR", long)
	t.Setenv("TMPDIR", long)
	dir, unlock, err := makeSocketDir(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("/tmp/dsh-%d", os.Getuid()); filepath.Dir(dir) != want {
		t.Errorf("got %s, want it in %s", dir, want)
	}
	unlock()
	if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
		t.Errorf("left behind in the long directory: %v, %v", left, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestThatNoDirectoryIsShortEnoughIsSaidWithItsPathAndTheLimit(t *testing.T) {
	long := longDir(t)
	_, err := socketBase([]string{long, long})
	part := long + " is too long: a socket's path has at most 103 bytes, and 48 are needed below it"
	want := "no directory for sockets: " + part + "\n" + part + "; set XDG_RUNTIME_DIR to a short path that is yours"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
