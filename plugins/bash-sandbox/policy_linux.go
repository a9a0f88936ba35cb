package bashsandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/dsh-go/dsh/plugins/bash-sandbox/launch"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

// newPolicy returns the policy that the configuration asks for, once a command under it has been seen to be confined.
func newPolicy(c *sdk.Context, config *Config) (executor.Policy, error) {
	if config.Mode == modeFull && config.Network {
		return nil, nil
	}
	s := &sandbox{mode: config.Mode, network: config.Network, namespaces: config.Namespaces == namespacesRequired}
	if s.confinesFiles() {
		var err error
		if s.abi, err = checkABI(landlock.LandlockGetABIVersion()); err != nil {
			return nil, err
		}
		if s.places, err = findPlaces(config, os.Getenv); err != nil {
			return nil, err
		}
		if s.allowWrite, err = expandAll("allowWrite", config.AllowWrite, homeDirs(os.Getenv)); err != nil {
			return nil, err
		}
	}
	if err := s.probe(c.Done()); err != nil {
		return nil, err
	}
	return s.apply, nil
}

// checkABI says what is missing when the kernel's version of Landlock does not do, or why it has none.
func checkABI(abi int, err error) (int, error) {
	switch {
	case errors.Is(err, syscall.EOPNOTSUPP):
		return 0, errors.New("the kernel has Landlock, but it is switched off: add landlock to the lsm= parameter of the kernel, or set mode: full " +
			"to confine no files")
	case err != nil:
		return 0, fmt.Errorf("this system has no Landlock (%w): files cannot be confined; it takes Linux 6.2 with CONFIG_SECURITY_LANDLOCK, and a "+
			"container must not filter its system calls; or set mode: full to confine no files", err)
	case abi < leastABI:
		return 0, fmt.Errorf("the kernel's Landlock is too old: version %d, and %d is needed to confine files, which is in Linux 6.2; or set "+
			"mode: full to confine no files", abi, leastABI)
	}
	return abi, nil
}

// sandbox confines commands. It is not changed once it is made.
type sandbox struct {
	mode       string
	network    bool
	namespaces bool
	abi        int
	places     places
	allowWrite []string
}

func (s *sandbox) confinesFiles() bool { return s.mode != modeFull }

// apply is the policy: it puts a launcher before the process.
func (s *sandbox) apply(p *executor.Process) error {
	workspace := p.Command.GetSessionCwd()
	if workspace == "" {
		workspace = p.Dir
	}
	owner := sha256.Sum256([]byte(p.Command.GetSessionId()))
	t := target{workspace: workspace, dir: p.Dir, private: p.TempDir, owner: hex.EncodeToString(owner[:6])}
	c, err := s.confine(&t, p.Attr)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	report, err := c.passReport(p.Pass)
	if err != nil {
		c.close()
		return fmt.Errorf("sandbox: %w", err)
	}
	if c.ruleset != nil {
		c.spec.Ruleset = p.Pass(c.ruleset)
	}
	if c.temp != "" {
		p.Env = slices.DeleteFunc(p.Env, func(variable string) bool { return strings.HasPrefix(variable, "TMPDIR=") })
		p.Env = append(p.Env, "TMPDIR="+c.temp)
	}
	p.Path, p.Argv = ownProgram, c.spec.Argv(p.Path, p.Argv)
	p.Finish = func(exit *bashv1.Exit, stderr []byte) ([]string, error) {
		defer report.Close()
		if exit == nil {
			return nil, nil
		}
		if failure, _ := io.ReadAll(report); len(failure) > 0 {
			return nil, fmt.Errorf("sandbox launcher: %s", failure)
		}
		if s.confinesFiles() && exit.GetCode() != 0 && looksDenied(stderr) {
			return []string{fmt.Sprintf("[sandbox: file access denied under %s mode]", s.mode)}, nil
		}
		return nil, nil
	}
	return nil
}

// ownProgram is the program of this process, also when its file has been replaced.
const ownProgram = "/proc/self/exe"

// looksDenied tells whether a command complained of what the sandbox answers when it denies something. That it was the sandbox
// is likely, not certain: nothing tells.
func looksDenied(stderr []byte) bool {
	return bytes.Contains(stderr, []byte("Permission denied")) || bytes.Contains(stderr, []byte("Read-only file system")) ||
		bytes.Contains(stderr, []byte("permission denied")) || bytes.Contains(stderr, []byte("EACCES"))
}

// target is what is to be confined.
type target struct {
	workspace string
	dir       string // the working directory
	private   string // the executor's own directory
	owner     string // whose temporary directory it gets: the session's
}

// confinement is how one process is confined.
type confinement struct {
	spec    launch.Spec
	ruleset *os.File // nil: files are not confined
	temp    string   // the private temporary directory, if there is one
}

func (c *confinement) close() {
	if c.ruleset != nil {
		c.ruleset.Close()
	}
}

// passReport opens the pipe on which the launcher reports a failure.
func (c *confinement) passReport(pass func(*os.File) int) (report *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	c.spec.Report = pass(w)
	return r, nil
}

// confine prepares what a launcher applies. attr gets the namespaces.
func (s *sandbox) confine(t *target, attr *syscall.SysProcAttr) (*confinement, error) {
	c := &confinement{spec: launch.Spec{Dir: t.dir, Drop: s.confinesFiles()}}
	if s.namespaces {
		attr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		if !s.network {
			attr.Cloneflags |= syscall.CLONE_NEWNET
			c.spec.Loopback = true
		}
		addIdentities(attr)
	}
	if !s.confinesFiles() {
		return c, nil
	}
	var writable []string // where they really are
	if s.mode == modeWorkspaceWrite {
		c.temp = filepath.Join(t.private, "tmp-"+t.owner)
		if err := os.MkdirAll(c.temp, 0o700); err != nil {
			return nil, fmt.Errorf("make a temporary directory: %w", err)
		}
		for _, path := range slices.Concat([]string{t.workspace, c.temp}, s.allowWrite) {
			writable = append(writable, realPath(path))
		}
		if writable[0] == "/" {
			return nil, fmt.Errorf("the workspace is the whole file system: choose a directory below it, or the mode %q or %q", modeReadOnly, modeFull)
		}
	}
	stores, services := find(s.places.stores), find(s.places.services)
	if err := s.checkPlaces(writable, stores, services); err != nil {
		return nil, err
	}
	if s.namespaces {
		// Both are sorted, but a store may lie in a directory of services.
		mounts, err := s.mounts(t, c.temp, writable, slices.Concat(services, stores))
		if err != nil {
			return nil, err
		}
		c.spec.Mounts = mounts
	}
	var err error
	c.ruleset, err = s.rules(writable, stores)
	return c, err
}

// checkPlaces refuses what contradicts itself: a workspace inside of a denied place would be hidden with it, and Landlock alone cannot
// keep a command from a place inside of the workspace.
func (s *sandbox) checkPlaces(writable []string, stores, services []place) error {
	for _, dir := range writable {
		for _, place := range slices.Concat(stores, services) {
			if isBelow(dir, place.path) {
				return fmt.Errorf("%s lies below %s, which commands are kept from: choose another workspace, or allow it with allowRead",
					dir, place.path)
			}
		}
		for _, store := range stores {
			if !s.namespaces && store.info != nil && isBelow(store.path, dir) {
				return fmt.Errorf("%s, which must not be read, lies in %s, which can be written: without namespaces that cannot be enforced; "+
					"choose another workspace, allow it with allowRead, or set namespaces: %s", store.path, dir, namespacesRequired)
			}
		}
	}
	return nil
}

// rules makes the Landlock ruleset.
func (s *sandbox) rules(writable []string, stores []place) (_ *os.File, err error) {
	r, err := newRuleset(s.abi)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.file.Close()
		}
	}()
	denied := []string{"/dev"}
	for _, store := range stores {
		denied = append(denied, store.path)
		if store.info != nil {
			r.skipped = append(r.skipped, store.info)
		}
	}
	// The names of files are no secrets, and much fails where directories cannot be listed.
	if err := r.allow("/", landlock.AccessFSReadDir); err != nil {
		return nil, err
	}
	if err := r.allowReading("/", denied); err != nil {
		return nil, err
	}
	for _, path := range writable {
		if err := r.allow(path, rightsToWrite); err != nil {
			return nil, err
		}
	}
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"} {
		if err := r.allow(device, useDevice); err != nil {
			return nil, err
		}
	}
	if s.namespaces { // then these are the command's own
		for _, device := range []string{"/dev/tty", "/dev/ptmx"} {
			if err := r.allow(device, useTerminal); err != nil {
				return nil, err
			}
		}
	}
	// Looking up names of hosts and users takes no orders.
	for _, service := range []string{"/run/systemd/resolve", "/run/systemd/userdb", "/run/nscd", "/var/lib/sss/pipes"} {
		if err := r.allow(service, rightsToRead|landlock.AccessFSResolveUnix); err != nil {
			return nil, err
		}
	}
	return r.file, nil
}
