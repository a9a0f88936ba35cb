// Package doctor finds out what this machine can and cannot guarantee, and says what follows and what a person can do about it.
//
// [Gather] looks at the machine, [Judge] says what the facts mean: a pure function, so that every machine can be tested on one.
package doctor

import (
	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/dev"
)

// Level says how much a check matters.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Note Level = "note" // something optional is missing
	Fail Level = "fail" // dsh cannot work
)

// Check is what was found about one thing. Only one that is not ok has a consequence and a remedy.
type Check struct {
	Name        string `json:"check"`
	Level       Level  `json:"level"`
	Detail      string `json:"detail"`
	Consequence string `json:"consequence"`
	Remedy      string `json:"remedy"`
}

// Facts are what there is to know of a machine.
type Facts struct {
	OS          string // as in runtime.GOOS
	Bash        Program
	Go          Program
	Sandbox     Sandbox
	Cgroup      Cgroup
	Watching    []dev.Limit
	RuntimeDirs []host.RuntimeDir
	State       Dir
	Files       uint64 // how many a process may have open
}

// Program is one that dsh runs.
type Program struct {
	Path    string
	Version string // may be empty
	Err     error  // why it cannot be run
}

// Sandbox is what the kernel gives to the plugin bash-sandbox. The host knows no plugin: who asks for the facts brings these.
type Sandbox struct {
	Landlock        int // the version that the kernel has
	LeastLandlock   int // the one that is needed
	LandlockErr     error
	NamespacesErr   error
	AllowNamespaces string // what may be done about it
}

// Cgroup is the cgroup v2 of this process: its directory, and why it cannot be written.
type Cgroup struct {
	Dir string
	Err error
}

// Dir is a directory for files of dsh.
type Dir struct {
	Path   string
	Absent bool  // it is not there yet
	Shared bool  // others can look into it
	Err    error // why it cannot be used
}

// Failed tells whether dsh cannot work.
func Failed(checks []Check) bool {
	for _, c := range checks {
		if c.Level == Fail {
			return true
		}
	}
	return false
}
