package main

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/sdk/api"
)

// raceOptions spare processes under the race detector the second it sleeps at their end.
const raceOptions = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	// This test program, started by a test as dsh, or by that to serve a plugin.
	if os.Getenv("RUN_DSH") != "" || os.Getenv(api.Handshake.MagicCookieKey) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"dsh": main})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"eventually": eventually, "find-socket": findSocket},
		Setup: func(e *testscript.Env) error {
			sockets, err := os.MkdirTemp("/tmp", "dsh") // short, and apart from the hosts of others
			if err != nil {
				return err
			}
			e.Defer(func() { os.RemoveAll(sockets) })
			e.Setenv("XDG_RUNTIME_DIR", sockets)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("GORACE", raceOptions)
			e.Setenv("PATH", os.Getenv("PATH"))
			return nil
		},
	})
}

// eventually runs a command until it succeeds with a stdout that matches: eventually PATTERN COMMAND...
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ts.Exec(args[1], args[2:]...) != nil || !pattern.MatchString(ts.ReadFile("stdout")) {
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("not within 20 s: %s\n%s%s", args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}

// findSocket sets a variable to the control socket of the one host that runs: find-socket NAME.
func findSocket(ts *testscript.TestScript, neg bool, args []string) {
	found := control.Find(ts.Getenv)
	if neg || len(args) != 1 || len(found) != 1 {
		ts.Fatalf("find-socket NAME: %q; found %q", args, found)
	}
	ts.Setenv(args[0], found[0])
}
