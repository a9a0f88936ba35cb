package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/dev"
	"github.com/dsh-go/dsh/sdk/api/environ"
)

// versionLimit is how long a program may take to say its version.
const versionLimit = 5 * time.Second

// Gather looks at this machine. It makes the runtime directory, as a host would, and changes nothing else.
func Gather(ctx context.Context, getenv func(string) string, sandbox Sandbox) Facts {
	f := Facts{OS: runtime.GOOS, Sandbox: sandbox, Watching: dev.Limits(), State: stateDir()}
	f.Bash = findBash(ctx)
	f.Go.Path, f.Go.Err = exec.LookPath("go")
	f.RuntimeDirs = host.RuntimeDirs(getenv)
	for i, dir := range f.RuntimeDirs {
		if dir.Err == nil {
			f.RuntimeDirs[i].Err = writable(dir.Path)
		}
	}
	if f.OS == "linux" {
		f.Cgroup = ownCgroup()
	}
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		f.Files = files.Cur // Go has raised it as far as it may
	}
	return f
}

func findBash(ctx context.Context) Program {
	path, err := exec.LookPath("bash")
	if err != nil {
		return Program{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--noprofile", "--norc", "-c",
		`echo "${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}.${BASH_VERSINFO[2]}"`)
	cmd.Env = []string{} // nothing that bash would read a file for
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return Program{Path: path, Err: fmt.Errorf("run %s: %w", path, err)}
	}
	return Program{Path: path, Version: strings.TrimSpace(string(out))}
}

// stateDir looks at the directory that hosts and agents of this user keep their state in, or where it would be made.
func stateDir() Dir {
	home, err := environ.StateHome()
	if err != nil {
		return Dir{Err: err}
	}
	d := Dir{Path: filepath.Join(home, "dsh")}
	info, err := os.Stat(d.Path)
	switch {
	case err == nil && !info.IsDir():
		d.Err = fmt.Errorf("%s is not a directory", d.Path)
	case err == nil:
		d.Shared = info.Mode().Perm()&0o077 != 0
		d.Err = writable(d.Path)
	case errors.Is(err, fs.ErrNotExist):
		d.Absent, d.Err = true, writable(nearest(d.Path))
	default:
		d.Err = err
	}
	return d
}

// nearest is the first directory above a path that is there.
func nearest(path string) string {
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return path
}

func writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be written: %w", dir, err)
	}
	return nil
}

// ownCgroup finds the cgroup v2 that this process is in.
func ownCgroup() Cgroup {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Cgroup{Err: err}
	}
	mount := cgroupMount()
	for line := range strings.Lines(string(text)) {
		path, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !v2 || mount == "" {
			continue
		}
		c := Cgroup{Dir: filepath.Join(mount, path)}
		if c.Err = writable(c.Dir); c.Err == nil {
			if err := unix.Access(filepath.Join(c.Dir, "cgroup.procs"), unix.W_OK); err != nil {
				c.Err = fmt.Errorf("%s/cgroup.procs cannot be written: %w", c.Dir, err)
			}
		}
		return c
	}
	return Cgroup{Err: errors.New("cgroup v2 is not mounted")}
}

// cgroupMount is where cgroup v2 is mounted; empty: nowhere.
func cgroupMount() string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 2 && fields[2] == "cgroup2" {
			return fields[1]
		}
	}
	return ""
}
