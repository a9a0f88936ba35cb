package doctor

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"

	"github.com/dsh-go/dsh/host/dev"
)

const (
	// fewFiles is what too few open files are: some systems allow no more unless asked.
	fewFiles = 1024
	// fewWatches and fewInstances are below what kernels have allowed since there is inotify: somebody has lowered them.
	fewWatches, fewInstances = 8192, 128
)

// Judge says what the facts mean, in the order in which a person wants to read it.
func Judge(f Facts) []Check {
	checks := []Check{judgeBash(f.Bash), judgeRuntimeDir(f), judgeState(f.State)}
	if f.OS == "linux" {
		checks = append(checks, judgeLandlock(f.Sandbox), judgeNamespaces(f.Sandbox), judgeCgroup(f.Cgroup))
	} else {
		checks = append(checks, withoutLinux()...)
	}
	for _, limit := range f.Watching {
		checks = append(checks, judgeWatching(limit))
	}
	return append(checks, judgeFiles(f), judgeGo(f.Go))
}

func judgeBash(p Program) Check {
	if p.Err != nil {
		return Check{"bash", Fail, reason(p.Err), "no command can be run", "install bash, and put it in PATH"}
	}
	return Check{Name: "bash", Level: OK, Detail: named(p)}
}

func judgeGo(p Program) Check {
	if p.Err != nil {
		return Check{"go", Note, reason(p.Err), "rows with source: cannot be built from Go", "install Go, and put it in PATH, if you write plugins"}
	}
	return Check{Name: "go", Level: OK, Detail: named(p)}
}

// named is a program with its version.
func named(p Program) string {
	if p.Version == "" {
		return p.Path
	}
	return fmt.Sprintf("%s (%s)", p.Path, p.Version)
}

// judgeRuntimeDir looks at the directories until one will do, as a host does. Each is checked to be private and short enough.
func judgeRuntimeDir(f Facts) Check {
	const name = "runtime-dir"
	var passed []string
	for _, dir := range f.RuntimeDirs {
		switch {
		case dir.Err != nil:
			passed = append(passed, reason(dir.Err))
		case len(passed) > 0:
			return Check{name, Note, fmt.Sprintf("%s, because %s", dir.Path, strings.Join(passed, "; ")),
				"sockets are there instead, and programs with another environment may look for a host elsewhere",
				"set XDG_RUNTIME_DIR to a short path that is yours"}
		default:
			return Check{Name: name, Level: OK, Detail: fmt.Sprintf("%s: private, writable, short enough for sockets (%d bytes)", dir.Path, len(dir.Path))}
		}
	}
	return Check{name, Fail, "there is none for sockets: " + strings.Join(passed, "; "), "no host can start",
		"set XDG_RUNTIME_DIR to a short path that is yours, and chmod 700 the directory dsh-<uid> below it"}
}

func judgeState(d Dir) Check {
	const name = "state-dir"
	switch {
	case d.Err != nil:
		return Check{name, Fail, reason(d.Err), "sessions cannot be stored: the agent does not start, and ids of tasks come again",
			"make it writable for you, or set XDG_STATE_HOME to a directory that is"}
	case d.Shared:
		return Check{name, Note, d.Path + " is open to others", "other users may see which sessions there are", "chmod 700 " + d.Path}
	case d.Absent:
		return Check{Name: name, Level: OK, Detail: d.Path + ": will be made when it is needed"}
	}
	return Check{Name: name, Level: OK, Detail: d.Path + ": private, writable"}
}

func judgeLandlock(s Sandbox) Check {
	const name, consequence = "landlock", "bash-sandbox will not start, unless it is told to confine no files (mode: full)"
	switch {
	case errors.Is(s.LandlockErr, syscall.EOPNOTSUPP):
		return Check{name, Note, "the kernel has it, but it is switched off", consequence, "add landlock to the lsm= parameter of the kernel"}
	case s.LandlockErr != nil:
		return Check{name, Note, "not available: " + reason(s.LandlockErr), consequence,
			"boot Linux 6.2 or newer with CONFIG_SECURITY_LANDLOCK and landlock in lsm=; a container must not filter its system calls"}
	case s.Landlock < s.LeastLandlock:
		return Check{name, Note, fmt.Sprintf("version %d, and %d is needed", s.Landlock, s.LeastLandlock), consequence, "boot Linux 6.2 or newer"}
	}
	return judgeLandlockVersion(s.Landlock)
}

// judgeLandlockVersion says what a version that will do leaves open; docs/sandbox.md has the table.
func judgeLandlockVersion(version int) Check {
	c := Check{Name: "landlock", Level: OK, Detail: fmt.Sprintf("version %d: bash-sandbox confines files", version)}
	switch {
	case version < 6:
		c.Level = Note
		c.Consequence = "confined commands can signal your other processes and, with network: true, connect to abstract sockets"
		if version < 5 {
			c.Consequence += ", and send requests to devices that they may open"
		}
		c.Remedy = "boot Linux 6.12 or newer"
	case version < 9:
		c.Detail += " and signals, but sockets by namespaces only"
	default:
		c.Detail += ", signals and sockets"
	}
	return c
}

func judgeNamespaces(s Sandbox) Check {
	if s.NamespacesErr == nil {
		return Check{Name: "namespaces", Level: OK, Detail: "user, mount and network namespaces are permitted"}
	}
	return Check{"namespaces", Note, "refused: " + reason(s.NamespacesErr),
		"bash-sandbox will not start, unless it is told to do without (namespaces: off, network: true), which protects less",
		strings.Trim(s.AllowNamespaces+"; or see \"With Landlock alone\" in docs/sandbox.md", "; ")}
}

// judgeCgroup tells of limits only: executors use no cgroup, and find what commands have started without one.
func judgeCgroup(c Cgroup) Check {
	if c.Err != nil {
		return Check{"cgroup", Note, "no cgroup v2 of your own: " + reason(c.Err),
			"you cannot limit the memory and processes of commands from here, and dsh does not; nothing else depends on it",
			"where you want limits, start dsh with `systemd-run --user --scope -p MemoryMax=4G dsh run`, or in a container that has them"}
	}
	return Check{Name: "cgroup", Level: OK, Detail: c.Dir + ": writable; dsh sets no limits in it"}
}

func judgeWatching(l dev.Limit) Check {
	name, few := "inotify-"+l.What, fewWatches
	if l.What == dev.Instances {
		few = fewInstances
	}
	switch {
	case l.Value < 0:
		return Check{Name: name, Level: OK, Detail: l.Name + " is not known"}
	case l.Value < few:
		return Check{name, Note, fmt.Sprintf("%s = %d", l.Name, l.Value),
			"where it is reached, dev mode looks at the files twice a second instead of being told of changes", l.Remedy()}
	}
	return Check{Name: name, Level: OK, Detail: fmt.Sprintf("%s = %d", l.Name, l.Value)}
}

func judgeFiles(f Facts) Check {
	c := Check{Name: "open-files", Level: OK, Detail: fmt.Sprintf("%d at once", f.Files)}
	switch {
	case f.Files >= math.MaxInt64: // infinity, which is another number on each system
		c.Detail = "no limit"
	case f.Files < fewFiles:
		c.Level = Note
		c.Consequence = "many calls, commands and sessions at once fail with \"too many open files\""
		if f.OS != "linux" {
			c.Consequence += ", and dev mode, which takes one for each file, looks at files twice a second instead"
		}
		c.Remedy = "raise the hard limit, with `ulimit -n 10240` as root or in limits.conf"
	}
	return c
}

// withoutLinux says what only Linux guarantees; docs/security.md has the table.
func withoutLinux() []Check {
	const remedy = "run dsh on Linux, or in a virtual machine with it, where you need that"
	return []Check{
		{"confinement", Note, "Landlock and namespaces are Linux's", "bash-sandbox will not start: commands can do all that you may", remedy},
		{"parent-death", Note, "the kernel does not end what a killed process has started",
			"plugins of a killed host end by themselves, within two seconds, and the guard ends commands", remedy},
		{"marks", Note, "the environment of other processes cannot be read",
			"what leaves its session, its group and its parent outlives the command that started it", remedy},
	}
}

// reason is an error on one line.
func reason(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
