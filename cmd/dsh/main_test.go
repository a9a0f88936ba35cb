package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-go/dsh/sdk/api"
)

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
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", os.Getenv("PATH"))
			return nil
		},
	})
}
