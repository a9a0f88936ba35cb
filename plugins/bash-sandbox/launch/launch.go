// Package launch confines a process and then becomes the command: the program that serves the sandbox, started again with its own
// arguments.
//
// The confinement is prepared by the executor and applied here, to the process that will be the command and to nothing else. The
// package imports as little as it can: of the packages whose imports are initialised, Go initialises the one with the first path, so
// that this one has run, and the process is bash, before the larger part of the program is initialised. One more import, of
// path/filepath or of Landlock's package, and it comes near the end.
package launch

import (
	"strconv"
	"strings"
)

// Name is the first argument of a launcher.
const Name = "dsh-sandbox"

// Spec is what a launcher does before it executes the command. It does it in the order of the fields.
type Spec struct {
	// Report is the descriptor that a failure is written to. Nothing is written and it is closed once the command runs.
	Report int
	// Loopback brings up the loopback interface of a new network namespace.
	Loopback bool
	// Mounts are made in order, in a new mount namespace; nil: the process is in its parent's.
	Mounts []Mount
	// Dir is the working directory, entered anew below the mounts.
	Dir string
	// Drop takes the capabilities over the system from a command of root; those over files and processes stay.
	Drop bool
	// Ruleset is the descriptor of a Landlock ruleset, 0: none.
	Ruleset int
}

// Mount is a file or directory that is seen in the place of another.
type Mount struct {
	// Source is bound over Target with what is mounted below it; empty: Target becomes a file system of new pseudo-terminals.
	Source, Target string
	// ReadOnly makes Target read-only.
	ReadOnly bool
	// Optional mounts are left out when the target does not exist any more.
	Optional bool
	// Rights are Landlock's to Target and all below it, added to the ruleset: it has none to a file system that is only made here.
	Rights uint64
}

// Argv is the command line of a launcher that executes path with argv.
func (s *Spec) Argv(path string, argv []string) []string {
	line := []string{Name, "report=" + strconv.Itoa(s.Report)}
	if s.Loopback {
		line = append(line, "loopback")
	}
	if s.Mounts != nil {
		line = append(line, "mounts")
	}
	for _, m := range s.Mounts {
		flags := ""
		if m.ReadOnly {
			flags += "r"
		}
		if m.Optional {
			flags += "o"
		}
		line = append(line, "mount="+flags, m.Source, m.Target, strconv.FormatUint(m.Rights, 10))
	}
	line = append(line, "dir="+s.Dir)
	if s.Drop {
		line = append(line, "drop")
	}
	if s.Ruleset != 0 {
		line = append(line, "ruleset="+strconv.Itoa(s.Ruleset))
	}
	return append(append(line, "exec="+path), argv...)
}

// parse is the reverse of Argv. The command line comes from Argv alone: what it cannot be is not looked for.
func parse(line []string) (s Spec, path string, argv []string) {
	for i := 1; i < len(line); i++ {
		key, value, _ := strings.Cut(line[i], "=")
		switch key {
		case "report":
			s.Report, _ = strconv.Atoi(value)
		case "loopback":
			s.Loopback = true
		case "mounts":
			s.Mounts = []Mount{}
		case "mount":
			m := Mount{Source: line[i+1], Target: line[i+2], ReadOnly: strings.Contains(value, "r"), Optional: strings.Contains(value, "o")}
			m.Rights, _ = strconv.ParseUint(line[i+3], 10, 64)
			s.Mounts = append(s.Mounts, m)
			i += 3
		case "dir":
			s.Dir = value
		case "drop":
			s.Drop = true
		case "ruleset":
			s.Ruleset, _ = strconv.Atoi(value)
		case "exec":
			return s, value, line[i+1:]
		}
	}
	return s, "", nil
}
