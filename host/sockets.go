package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dsh-go/dsh/host/control"
)

// unlocked begins the name of a directory that has no lock yet.
const unlocked = ".new-"

const (
	// maxSocketPath is the longest path of a unix socket, in bytes: 108 on Linux, 104 on macOS, with the closing zero byte.
	maxSocketPath = 103
	// socketNameRoom is what is put behind the host's directory at most: go-plugin's /<number>/plugin-dir<number>/plugin<number>.
	socketNameRoom = 48
)

// makeSocketDir makes a private directory with a short path for the sockets of one host, and removes those of hosts that were killed.
// unlock removes it.
func makeSocketDir(getenv func(string) string) (dir string, unlock func(), err error) {
	base, err := socketBase(control.SocketBases(getenv))
	if err != nil {
		return "", nil, err
	}
	removeStale(base)
	dir, err = os.MkdirTemp(base, unlocked)
	if err != nil {
		return "", nil, fmt.Errorf("make the socket directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil { // only now others may take it for what is left of a dead host if they find it unlocked
		locked := filepath.Join(base, strings.TrimPrefix(filepath.Base(dir), unlocked))
		if err = os.Rename(dir, locked); err == nil {
			dir = locked
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("lock the socket directory: %w", err)
	}
	return dir, func() {
		os.RemoveAll(dir)
		lock.Close()
	}, nil
}

// RuntimeDir is a directory that a host may have its sockets below, made if it can be, and why it cannot be used.
type RuntimeDir struct {
	Path string
	Err  error
}

// RuntimeDirs tries the directories for sockets in the order in which a host does: the first without an error is the one it uses.
func RuntimeDirs(getenv func(string) string) []RuntimeDir {
	var dirs []RuntimeDir
	for _, base := range control.SocketBases(getenv) {
		dirs = append(dirs, RuntimeDir{base, useBase(base)})
	}
	return dirs
}

// socketBase finds a private directory that is short enough: the first of these that is or can be made one.
func socketBase(bases []string) (string, error) {
	var errs []error
	for _, base := range bases {
		err := useBase(base)
		if err == nil {
			return base, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no directory for sockets: %w; set XDG_RUNTIME_DIR to a short path that is yours", errors.Join(errs...))
}

// useBase makes a directory that sockets can be below, or says why it is none.
func useBase(base string) error {
	if len(base)+socketNameRoom > maxSocketPath {
		return fmt.Errorf("%s is too long: a socket's path has at most %d bytes, and %d are needed below it", base, maxSocketPath, socketNameRoom)
	}
	return makePrivate(base)
}

// makePrivate makes a directory that only this user can enter, or checks that it is one.
func makePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(owner.Uid) != os.Getuid() || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("%s is not a directory of mode 0700 that is yours", dir)
	}
	return nil
}

// removeStale removes the directories of hosts that are gone: their locks are free.
func removeStale(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		if info, err := e.Info(); strings.HasPrefix(e.Name(), unlocked) && (err != nil || time.Since(info.ModTime()) < time.Minute) {
			continue // it is being made
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(dir)
		}
		lock.Close()
	}
}
