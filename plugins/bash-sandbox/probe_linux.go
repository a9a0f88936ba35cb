package bashsandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/dsh-go/dsh/plugins/bash-sandbox/launch"
)

// probeLimit is how long the probe may take.
const probeLimit = 10 * time.Second

// probe runs a command under the sandbox that tries what it must not be able to do, and says what is missing if it could, or could not
// even be started.
func (s *sandbox) probe(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "dsh-sandbox-")
	if err != nil {
		return fmt.Errorf("try the sandbox: %w", err)
	}
	defer os.RemoveAll(dir)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		return fmt.Errorf("try the sandbox: %w", err)
	}
	workspace := filepath.Join(dir, "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		return fmt.Errorf("try the sandbox: %w", err)
	}
	tried := *s
	tried.places.stores = append([]string{secret}, s.places.stores...)
	attr := &syscall.SysProcAttr{}
	c, err := tried.confine(&target{workspace: workspace, dir: "/", private: filepath.Join(dir, "private")}, attr)
	if err != nil {
		return fmt.Errorf("try the sandbox: %w", err)
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, ownProgram)
	pass := func(f *os.File) int {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		return 2 + len(cmd.ExtraFiles)
	}
	report, err := c.passReport(pass)
	if err != nil {
		return fmt.Errorf("try the sandbox: %w", err)
	}
	defer report.Close()
	if c.ruleset != nil {
		c.spec.Ruleset = pass(c.ruleset)
	}
	probe := launch.Probe{Network: !s.network}
	if s.confinesFiles() {
		probe.Secret, probe.Outside = secret, dir
		if s.mode == modeWorkspaceWrite {
			probe.Inside = workspace
		}
	}
	cmd.Args, cmd.Dir, cmd.SysProcAttr = c.spec.Argv(ownProgram, probe.Argv()), "/", attr
	var said strings.Builder
	cmd.Stdout = &said
	started := cmd.Start()
	cmd.ExtraFiles[0].Close() // the other end of report
	if started != nil {
		return s.refused(started)
	}
	err = cmd.Wait()
	if failure, _ := io.ReadAll(report); len(failure) > 0 {
		return s.refused(fmt.Errorf("sandbox launcher: %s", failure))
	}
	if err != nil {
		return fmt.Errorf("the sandbox does not hold on this system: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// refused explains why a confined command could not be started.
func (s *sandbox) refused(err error) error {
	if !s.namespaces {
		return fmt.Errorf("a command cannot be confined on this system: %w", err)
	}
	what, instead := "user and mount namespaces", `set namespaces: off and network: true to confine files with Landlock alone`
	if !s.network {
		what = "user, mount and network namespaces"
	}
	if !s.confinesFiles() {
		instead = "set network: true"
	}
	return fmt.Errorf("this system refuses %s (%w), by which commands are confined: %s; or %s", what, err, allowNamespaces(err), instead)
}

// allowNamespaces says what may let a system start what it refused with an error.
func allowNamespaces(err error) string {
	var remedies []string
	for path, remedy := range map[string]string{
		"/proc/sys/user/max_user_namespaces=0":                     "sysctl user.max_user_namespaces=10000",
		"/proc/sys/kernel/unprivileged_userns_clone=0":             "sysctl kernel.unprivileged_userns_clone=1",
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns=1": "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with userns for this program",
	} {
		file, bad, _ := strings.Cut(path, "=")
		if value, readErr := os.ReadFile(file); readErr == nil && strings.TrimSpace(string(value)) == bad {
			remedies = append(remedies, remedy)
		}
	}
	if len(remedies) == 0 && !errors.Is(err, os.ErrNotExist) {
		remedies = append(remedies, "allow them, in a container by its seccomp profile")
	}
	return strings.Join(remedies, "; ")
}

// Examine finds out what the kernel gives to the sandbox. It starts this program again, as the sandbox does for each command.
func Examine(ctx context.Context) Support {
	s := Support{LeastLandlock: leastABI}
	s.Landlock, s.LandlockErr = landlock.LandlockGetABIVersion()
	// With this mode and no network the sandbox is made of namespaces alone.
	if err := (&sandbox{mode: modeFull, namespaces: true}).probe(ctx); err != nil {
		cause := err
		for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
			cause = next
		}
		s.NamespacesErr, s.AllowNamespaces = cause, allowNamespaces(cause)
	}
	return s
}
