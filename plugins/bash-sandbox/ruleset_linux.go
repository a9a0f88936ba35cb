package bashsandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	// leastABI is the first version of Landlock that covers truncating files.
	leastABI = 3

	rightsOfFile = landlock.AccessFSExecute | landlock.AccessFSReadFile | landlock.AccessFSWriteFile | landlock.AccessFSTruncate |
		landlock.AccessFSIoctlDev | landlock.AccessFSResolveUnix
	useDevice     = landlock.AccessFSReadFile | landlock.AccessFSWriteFile | landlock.AccessFSTruncate
	useTerminal   = useDevice | landlock.AccessFSIoctlDev
	rightsToRead  = landlock.AccessFSExecute | landlock.AccessFSReadFile | landlock.AccessFSReadDir
	rightsToWrite = rightsToRead | landlock.AccessFSWriteFile | landlock.AccessFSTruncate |
		landlock.AccessFSMakeDir | landlock.AccessFSMakeReg | landlock.AccessFSMakeSym | landlock.AccessFSMakeSock | landlock.AccessFSMakeFifo |
		landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile | landlock.AccessFSRefer | landlock.AccessFSResolveUnix
)

// handled are the rights that a version of Landlock takes from who is in a domain, as far as no rule gives them.
func handled(abi int) *landlock.RulesetAttr {
	attr := &landlock.RulesetAttr{HandledAccessFS: landlock.AccessFSIoctlDev - 1}
	if abi >= 5 {
		attr.HandledAccessFS |= landlock.AccessFSIoctlDev
	}
	if abi >= 6 {
		attr.Scoped = landlock.ScopeSignal | landlock.ScopeAbstractUnixSocket
	}
	if abi >= 9 {
		attr.HandledAccessFS |= landlock.AccessFSResolveUnix
	}
	return attr
}

// ruleset is a Landlock ruleset that is being made. Rules belong to files, not to names: of a file that is renamed or linked they
// hold wherever it is found.
type ruleset struct {
	file    *os.File
	handled uint64
	skipped []fs.FileInfo // files that must get no rule, whatever their names
}

func newRuleset(abi int) (*ruleset, error) {
	attr := handled(abi)
	fd, err := landlock.LandlockCreateRuleset(attr, 0)
	if err != nil {
		return nil, fmt.Errorf("create a Landlock ruleset: %w", err)
	}
	unix.CloseOnExec(fd)
	return &ruleset{file: os.NewFile(uintptr(fd), "ruleset"), handled: attr.HandledAccessFS}, nil
}

// allow gives rights to a file or to a directory with all below it. What does not exist, or is a symbolic link, gets none: the link's
// target has rules of its own.
func (r *ruleset) allow(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) {
			return nil // nothing is there, or nothing that this user could use
		}
		return fmt.Errorf("open %s for a Landlock rule: %w", path, err)
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return fmt.Errorf("examine %s for a Landlock rule: %w", path, err)
	}
	isSkipped := func(other fs.FileInfo) bool {
		stat, ok := other.Sys().(*syscall.Stat_t)
		return ok && stat.Dev == info.Dev && stat.Ino == info.Ino
	}
	if slices.ContainsFunc(r.skipped, isSkipped) {
		return nil
	}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return nil
	default:
		rights &= rightsOfFile
	}
	if rights &= r.handled; rights == 0 {
		return nil
	}
	if err := landlock.LandlockAddPathBeneathRule(int(r.file.Fd()), &landlock.PathBeneathAttr{ParentFd: fd, AllowedAccess: rights}, 0); err != nil {
		return fmt.Errorf("add a Landlock rule for %s: %w", path, err)
	}
	return nil
}

// allowReading gives the right to read everything below path but what is denied. Landlock has no exceptions: a directory with
// something denied below it gets no rule, but each of its other entries does.
func (r *ruleset) allowReading(path string, denied []string) error {
	var below []string
	for _, d := range denied {
		if d == path {
			return nil
		}
		if isBelow(d, path) {
			below = append(below, d)
		}
	}
	if len(below) == 0 {
		return r.allow(path, rightsToRead)
	}
	for _, name := range entries(path, below) {
		if err := r.allowReading(filepath.Join(path, name), below); err != nil {
			return err
		}
	}
	return nil
}

// entries are the names in a directory that are no symbolic links; of one that cannot be listed, those that lead to what is below.
func entries(dir string, below []string) []string {
	found, err := os.ReadDir(dir)
	var names []string
	if err == nil {
		for _, entry := range found {
			if entry.Type()&os.ModeSymlink == 0 {
				names = append(names, entry.Name())
			}
		}
		return names
	}
	for _, path := range below {
		rest := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		name, _, _ := strings.Cut(rest, "/")
		names = append(names, name)
	}
	return unique(names)
}
