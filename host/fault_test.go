package host_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

func TestFaultsOfARowAreReportedWithTheirPlaceAndTheRestRuns(t *testing.T) {
	for _, test := range []struct{ name, row, want string }{
		{"an activation error", "plugin: broken", `test.yaml:4: row "bad": activate: no luck today`},
		{"a panic in Activate", "plugin: panics", `test.yaml:4: row "bad": activate: panic in Activate: oh no`},
		{"a provide that is not registered", "plugin: forgetful\n    env: {PID_FILE: /dev/null}", `test.yaml:4: row "bad": activate: the manifest provides seam "x", but activation registered no test.X`},
		{"an unknown config key", "plugin: bash\n    config:\n      cwdd: /x", `test.yaml:7: row "bad": unknown key "cwdd" in config; did you mean "cwd"?`},
		{"a config value of the wrong type", "plugin: bash\n    config:\n      cwd: 7", `test.yaml:7: row "bad": config.cwd must be a string, not a number`},
		{"an unknown built-in", "plugin: bahs", `test.yaml:4: row "bad": no built-in plugin "bahs"; did you mean "bash"?`},
		{"a program that does not exist", "command: [/no/such/program]", `test.yaml:4: row "bad": cannot start: exec: "/no/such/program": stat /no/such/program: no such file or directory`},
		{"a program that exits at once", "command: [/bin/sh, -c, 'echo no config found >&2; exit 3']", `test.yaml:4: row "bad": cannot start: it exited before its handshake (exit status 3; last on stderr: no config found)`},
		{"a program that prints a banner", "command: [/bin/sh, -c, 'echo Welcome to ACME; sleep 30']", `test.yaml:4: row "bad": cannot start: its stdout begins with "Welcome to ACME" and not with the handshake of a plugin of dsh`},
		{"a second provider", "plugin: bash", `test.yaml:4: row "bad": seam "bash" is already provided by row "first"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			yaml := "plugins:\n  - id: first\n    plugin: bash\n  - id: bad\n    " + test.row + "\n"
			h, conn, _ := run(t, yaml)
			got := statusOf(t, h, "bad")
			if got.Phase != "failed" || !strings.Contains(got.Reason, test.want) {
				t.Errorf("got %s, %q, want failed, %q", got.Phase, got.Reason, test.want)
			}
			if got, err := runBash(t.Context(), bashv1.NewBashClient(conn), "echo on"); err != nil || got != "on" {
				t.Errorf("the other row does not serve: %q, %v", got, err)
			}
		})
	}
}

func TestNothingIsLeftOfAPluginThatLacksItsService(t *testing.T) {
	file := t.TempDir() + "/pid"
	h, conn, _ := run(t, "plugins:\n- {id: first, plugin: bash}\n- {id: bad, plugin: forgetful, env: {PID_FILE: "+file+"}}\n")
	if got := statusOf(t, h, "bad"); got.Phase != "failed" || !strings.Contains(got.Reason, "activation registered no test.X") {
		t.Errorf("got %+v", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	if got, err := runBash(t.Context(), bashv1.NewBashClient(conn), "echo on"); err != nil || got != "on" {
		t.Errorf("the other row does not serve: %q, %v", got, err)
	}
}
