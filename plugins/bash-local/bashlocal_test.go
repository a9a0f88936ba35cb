package bashlocal_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	bashlocal "github.com/dsh-go/dsh/plugins/bash-local"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDefaultLimits(t *testing.T) {
	c := bash.NewClient(plugintest.Start(t, bashlocal.Plugin(), plugintest.Options{Config: map[string]any{"cwd": "/"}}).Conn())
	got, err := c.Defaults(t.Context())
	if want := (&bashv1.DefaultsResponse{TimeoutMs: 120000, MaxTimeoutMs: 600000, Cwd: "/"}); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestConfigReachesTheExecutor(t *testing.T) {
	t.Setenv("MY_TOKEN", "kept")
	t.Setenv("YOUR_TOKEN", "not")
	c := bash.NewClient(plugintest.Start(t, bashlocal.Plugin(), plugintest.Options{Config: map[string]any{
		"shell": "/bin/bash", "cwd": "/", "timeoutMs": 400, "maxTimeoutMs": 500, "killGraceMs": 100, "outputLimitBytes": 10, "spillLimitBytes": 20,
		"keepEnv": []string{"MY_TOKEN"},
	}}).Conn())
	run := func(command string, timeoutMs int64) *bashv1.Result {
		t.Helper()
		r, err := c.Run(t.Context(), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: command}, TimeoutMs: timeoutMs}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run("pwd; echo $MY_TOKEN$YOUR_TOKEN", 0); string(r.GetStdout().GetData()) != "/\nkept\n" || r.GetTimeoutMs() != 400 {
		t.Errorf("got %v", r)
	}
	if r := run("printf %030d 7", 0); string(r.GetStdout().GetData()) != "0000000007" || !r.GetStdout().GetSpillCapped() {
		t.Errorf("got %v", r)
	}
	if r := run("trap '' TERM; while :; do sleep .02; done", 1000); !r.GetTimedOut() || r.GetTimeoutMs() != 500 || r.GetExit().GetSignal() != "SIGKILL" || r.GetDurationUs() > 2_000_000 {
		t.Errorf("got %v", r)
	}
}

func TestBadConfigFailsTheActivation(t *testing.T) {
	for want, config := range map[string]map[string]any{
		"must be an absolute path": {"cwd": "relative"},
		"nonsense":                 {"nonsense": 1},
	} {
		if _, err := plugintest.Activate(t, bashlocal.Plugin(), plugintest.Options{Config: config}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
