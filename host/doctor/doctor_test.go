package doctor

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/dev"
)

// sound is a machine that lacks nothing.
func sound() Facts {
	return Facts{
		OS:      "linux",
		Bash:    Program{Path: "/usr/bin/bash", Version: "5.2.15"},
		Go:      Program{Path: "/usr/bin/go"},
		Sandbox: Sandbox{Landlock: 9, LeastLandlock: 3},
		Cgroup:  Cgroup{Dir: "/sys/fs/cgroup/user"},
		Watching: []dev.Limit{
			{What: dev.Watches, Name: "fs.inotify.max_user_watches", Value: 8192, Enough: 524288},
			{What: dev.Instances, Name: "fs.inotify.max_user_instances", Value: 128, Enough: 1024},
		},
		RuntimeDirs: []host.RuntimeDir{{Path: "/run/user/1/dsh-1"}, {Path: "/tmp/dsh-1"}},
		State:       Dir{Path: "/home/ann/.local/state/dsh"},
		Files:       1024,
	}
}

func TestASoundMachineLacksNothing(t *testing.T) {
	for _, c := range Judge(sound()) {
		if c.Level != OK || c.Detail == "" || c.Consequence != "" || c.Remedy != "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestWhatIsMissingHasAConsequenceAndARemedy(t *testing.T) {
	none := errors.New("there is none")
	for name, test := range map[string]struct {
		change func(*Facts)
		check  string
		level  Level
		says   []string // parts of its detail, its consequence and its remedy
	}{
		"no bash": {func(f *Facts) { f.Bash = Program{Err: none} }, "bash", Fail, []string{"there is none", "no command", "install bash"}},
		"no Go":   {func(f *Facts) { f.Go = Program{Err: none} }, "go", Note, []string{"there is none", "source:", "install Go"}},
		"no runtime directory": {func(f *Facts) {
			f.RuntimeDirs = []host.RuntimeDir{{Path: "/a", Err: none}, {Path: "/b", Err: errors.New("two\nlines")}}
		},
			"runtime-dir", Fail, []string{"there is none; two lines", "no host can start", "XDG_RUNTIME_DIR"}},
		"the preferred runtime directory is not usable": {func(f *Facts) { f.RuntimeDirs[0].Err = errors.New("/run is too long") },
			"runtime-dir", Note, []string{"/tmp/dsh-1, because /run is too long", "sockets are there", "XDG_RUNTIME_DIR"}},
		"no state directory":           {func(f *Facts) { f.State.Err = none }, "state-dir", Fail, []string{"there is none", "sessions", "XDG_STATE_HOME"}},
		"a state directory open":       {func(f *Facts) { f.State.Shared = true }, "state-dir", Note, []string{"open to others", "sessions", "chmod 700 /home"}},
		"a state directory to be made": {func(f *Facts) { f.State.Absent = true }, "state-dir", OK, []string{"will be made"}},
		"no Landlock": {func(f *Facts) { f.Sandbox.LandlockErr = syscall.ENOSYS }, "landlock", Note,
			[]string{"function not implemented", "bash-sandbox will not start", "Linux 6.2"}},
		"Landlock off": {func(f *Facts) { f.Sandbox.LandlockErr = syscall.EOPNOTSUPP }, "landlock", Note,
			[]string{"switched off", "bash-sandbox will not start", "lsm="}},
		"Landlock too old": {func(f *Facts) { f.Sandbox.Landlock = 2 }, "landlock", Note, []string{"version 2, and 3", "will not start", "Linux 6.2"}},
		"Landlock 4":       {func(f *Facts) { f.Sandbox.Landlock = 4 }, "landlock", Note, []string{"version 4", "signal", "devices", "Linux 6.12"}},
		"Landlock 5":       {func(f *Facts) { f.Sandbox.Landlock = 5 }, "landlock", Note, []string{"version 5", "abstract sockets", "Linux 6.12"}},
		"Landlock 6":       {func(f *Facts) { f.Sandbox.Landlock = 6 }, "landlock", OK, []string{"sockets by namespaces only"}},
		"no namespaces": {func(f *Facts) { f.Sandbox.NamespacesErr, f.Sandbox.AllowNamespaces = syscall.EPERM, "sysctl x=1" },
			"namespaces", Note, []string{"operation not permitted", "namespaces: off", "sysctl x=1; or see"}},
		"no namespaces and no advice": {func(f *Facts) { f.Sandbox.NamespacesErr = none }, "namespaces", Note,
			[]string{"there is none", "namespaces: off", "docs/sandbox.md"}},
		"no cgroup": {func(f *Facts) { f.Cgroup.Err = none }, "cgroup", Note, []string{"there is none", "limit", "systemd-run"}},
		"few watches": {func(f *Facts) { f.Watching[0].Value = 8191 }, "inotify-watches", Note,
			[]string{"= 8191", "twice a second", "sysctl fs.inotify.max_user_watches=524288"}},
		"few instances": {func(f *Facts) { f.Watching[1].Value = 127 }, "inotify-instances", Note,
			[]string{"= 127", "twice a second", "sysctl fs.inotify.max_user_instances=1024"}},
		"limits not known": {func(f *Facts) { f.Watching[0].Value = -1 }, "inotify-watches", OK, []string{"not known"}},
		"few files":        {func(f *Facts) { f.Files = 256 }, "open-files", Note, []string{"256", "too many open files", "ulimit"}},
		"files no limit":   {func(f *Facts) { f.Files = math.MaxUint64 }, "open-files", OK, []string{"no limit"}},
		"macOS":            {func(f *Facts) { f.OS = "darwin" }, "confinement", Note, []string{"Linux's", "bash-sandbox will not start", "run dsh on Linux"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound()
			test.change(&f)
			checks := Judge(f)
			c := find(checks, test.check)
			text := strings.Join([]string{c.Detail, c.Consequence, c.Remedy}, "\n")
			for _, part := range test.says {
				if !strings.Contains(text, part) {
					t.Errorf("%+v lacks %q", c, part)
				}
			}
			if c.Level != test.level || c.Level != OK && (c.Consequence == "" || c.Remedy == "") || strings.Contains(c.Detail, "\n") {
				t.Errorf("%+v", c)
			}
			if Failed(checks) != (test.level == Fail) {
				t.Errorf("failed: %v", Failed(checks))
			}
		})
	}
}

func TestMacOSIsNotAskedForWhatOnlyLinuxHas(t *testing.T) {
	f := sound()
	f.OS, f.Watching = "darwin", nil
	checks := Judge(f)
	for _, name := range []string{"landlock", "namespaces", "cgroup", "inotify-watches"} {
		if c := find(checks, name); c.Name != "" {
			t.Errorf("%+v", c)
		}
	}
	for _, name := range []string{"confinement", "parent-death", "marks"} {
		if c := find(checks, name); c.Level != Note {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func find(checks []Check, name string) Check {
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	return Check{}
}

func TestTheStateDirectoryIsLookedAtAndNotMade(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "not", "there"))
	if d := stateDir(); d.Err != nil || !d.Absent || d.Path != filepath.Join(home, "not", "there", "dsh") {
		t.Errorf("one that can be made: %+v", d)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
	t.Setenv("XDG_STATE_HOME", home)
	if err := os.Mkdir(filepath.Join(home, "dsh"), 0o750); err != nil {
		t.Fatal(err)
	}
	if d := stateDir(); d.Err != nil || !d.Shared {
		t.Errorf("one that is open: %+v", d)
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "file"))
	if err := os.WriteFile(filepath.Join(home, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d := stateDir(); d.Err == nil {
		t.Errorf("one below a file: %+v", d)
	}
}
