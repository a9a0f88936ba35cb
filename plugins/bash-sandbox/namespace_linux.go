package bashsandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dsh-go/dsh/plugins/bash-sandbox/launch"
)

// mounts are what a command sees in place of what is there: nothing where it must not look, its own temporary directory as shared
// memory, pseudo-terminals of its own, and of repositories what git executes read-only.
func (s *sandbox) mounts(t *target, temp string, writable []string, hidden []place) ([]launch.Mount, error) {
	nothing := filepath.Join(t.private, "nothing")
	empty := map[bool]string{true: filepath.Join(nothing, "directory"), false: filepath.Join(nothing, "file")}
	if err := makeEmpty(nothing, empty[true], empty[false]); err != nil {
		return nil, err
	}
	mounts := []launch.Mount{{Target: "/dev/pts", Optional: true, Rights: useTerminal & handled(s.abi).HandledAccessFS}}
	if temp != "" {
		mounts = append(mounts, launch.Mount{Source: temp, Target: "/dev/shm", Optional: true})
	}
	for _, dir := range writable {
		mounts = append(mounts, protect(dir)...)
	}
	var covered []string
	for _, place := range hidden {
		within := func(dir string) bool { return isBelow(place.path, dir) }
		if place.info == nil || place.info.Mode()&fs.ModeSymlink != 0 || slices.ContainsFunc(covered, within) {
			continue
		}
		if place.info.IsDir() {
			covered = append(covered, place.path)
		}
		mounts = append(mounts, launch.Mount{Source: empty[place.info.IsDir()], Target: place.path, ReadOnly: true, Optional: true})
	}
	return mounts, nil
}

// makeEmpty makes a directory and a file that nobody can use.
func makeEmpty(parent, dir, file string) error {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return fmt.Errorf("make what is shown in place of what is hidden: %w", err)
	}
	if err := os.Mkdir(dir, 0); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make what is shown in place of what is hidden: %w", err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make what is shown in place of what is hidden: %w", err)
	}
	return nil
}

// protect keeps what git and dsh themselves would execute for the user later as it is. A mount point cannot be renamed or removed:
// that is why the repository's own directory is mounted in its place.
func protect(dir string) []launch.Mount {
	fixed := func(path string) launch.Mount {
		return launch.Mount{Source: path, Target: path, ReadOnly: true, Optional: true}
	}
	var mounts []launch.Mount
	if config := filepath.Join(dir, "dsh.yaml"); kind(config) == regularFile {
		mounts = append(mounts, fixed(config))
	}
	git := filepath.Join(dir, ".git")
	switch kind(git) {
	case regularFile: // it says where the repository is
		mounts = append(mounts, fixed(git))
	case directory:
		// What does not exist cannot be mounted over. A Root follows no link out of the workspace, which commands have written.
		if root, err := os.OpenRoot(dir); err == nil {
			_ = root.Mkdir(".git/hooks", 0o777)
			root.Close()
		}
		mounts = append(mounts, launch.Mount{Source: git, Target: git, Optional: true})
		for _, name := range []string{"hooks", "config"} {
			if path := filepath.Join(git, name); kind(path) != other {
				mounts = append(mounts, fixed(path))
			}
		}
	}
	return mounts
}

const (
	other = iota // a symbolic link, too: mounting would follow it
	regularFile
	directory
)

func kind(path string) int {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().IsRegular():
		return regularFile
	case err == nil && info.IsDir():
		return directory
	}
	return other
}

// addIdentities keeps every user and group what it is in a new user namespace: all that there are for root, which owns the
// files of others, and otherwise this user and group. The capabilities are the launcher's, which gives them up.
func addIdentities(attr *syscall.SysProcAttr) {
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}
	if canMapAll() {
		uids, uidErr := identities("/proc/self/uid_map")
		gids, gidErr := identities("/proc/self/gid_map")
		if uidErr == nil && gidErr == nil {
			attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = uids, gids, true
			return
		}
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
}

// canMapAll tells whether this process may give identities away that are not its own.
func canMapAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETFCAP
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&needed == needed
}

// identities reads which ids there are.
func identities(mapping string) ([]syscall.SysProcIDMap, error) {
	file, err := os.Open(mapping)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []syscall.SysProcIDMap
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var first, outside, size int64
		if _, err := fmt.Sscan(strings.TrimSpace(lines.Text()), &first, &outside, &size); err != nil {
			return nil, err
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: int(first), HostID: int(first), Size: int(min(size, math.MaxInt))})
	}
	return all, lines.Err()
}
