package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-go/dsh/sdk/api"
)

func TestMain(m *testing.M) {
	if os.Getenv(api.Handshake.MagicCookieKey) != "" { // this test program, started by itself to serve a plugin
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
