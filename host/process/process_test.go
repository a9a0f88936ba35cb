package process

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestAStartThatFailsIsExplainedInOneLine(t *testing.T) {
	for _, tt := range []struct{ script, want string }{
		{"exit 3", "cannot start: it exited before its handshake (exit status 3)"},
		{"exit 0", "cannot start: it exited before its handshake (exit status 0)"},
		{"for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; exit 3",
			"cannot start: it exited before its handshake (exit status 3; last on stderr: line 3 | line 4 | line 5 | line 6 | line 7)"},
		{"echo half >&2; kill -9 $$", "cannot start: it exited before its handshake (signal: killed; last on stderr: half)"},
		{"echo; sleep 30", `cannot start: its stdout begins with "" and not with the handshake of a plugin of dsh`},
		{"echo Welcome to ACME; echo and more; sleep 30", `cannot start: its stdout begins with "Welcome to ACME" and not with the handshake of a plugin of dsh`},
		{"echo why >&2; echo Welcome; exit 1", `cannot start: its stdout begins with "Welcome" and not with the handshake of a plugin of dsh (last on stderr: why)`},
	} {
		t.Run(tt.script, func(t *testing.T) {
			p, err := Start(t.Context(), Spec{
				Argv: []string{"/bin/sh", "-c", tt.script}, Env: os.Environ(), SocketDir: t.TempDir(), Log: hclog.NewNullLogger(),
			})
			if err == nil {
				p.Kill()
				t.Fatal("it started")
			}
			if err.Error() != tt.want || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}
