package control

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// listen opens a socket in a host's directory. One that is stale stays without a listener.
func listen(t *testing.T, dir string, stale bool) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, SocketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	if stale {
		l.SetUnlinkOnClose(false)
		l.Close()
	} else {
		t.Cleanup(func() { l.Close() })
	}
	return socket
}

func TestFind(t *testing.T) {
	own := "dsh-" + strconv.Itoa(os.Getuid())
	runtime, temp := shortDir(t), shortDir(t)
	t.Setenv("TMPDIR", temp)
	getenv := func(string) string { return runtime }

	second := listen(t, filepath.Join(temp, own, "1"), false)
	listen(t, filepath.Join(runtime, own, "killed"), true)
	if err := os.Mkdir(filepath.Join(runtime, own, "without"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := Find(getenv); !slices.Equal(got, []string{second}) {
		t.Errorf("found %q, not %q: the one below the temporary directory", got, second)
	}

	a, b := listen(t, filepath.Join(runtime, own, "a"), false), listen(t, filepath.Join(runtime, own, "b"), false)
	if got := Find(getenv); !slices.Equal(got, []string{a, b}) {
		t.Errorf("found %q, not those below the runtime directory, %q and %q", got, a, b)
	}

	if err := os.Chmod(filepath.Join(runtime, own), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := Find(getenv); !slices.Equal(got, []string{second}) {
		t.Errorf("found %q: a directory that others can enter counts", got)
	}
}
