package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// moodyConfig is read anew by each instance: what the file says decides how it behaves.
type moodyConfig struct {
	File string `json:"file,omitempty"`
}

// init adds a plugin whose program seems to change: it serves bash as long as its file says nothing else.
func init() {
	testPlugins["moody"] = func() *sdk.Plugin {
		return sdk.Define(sdk.Manifest{Name: "moody", Provides: []sdk.Seam{bashSeam}}, moodyConfig{}, func(c *sdk.Context, config moodyConfig) error {
			mood, _ := os.ReadFile(config.File)
			switch string(mood) {
			case "fail":
				return fmt.Errorf("not in the mood")
			case "crash":
				c.Go("crash", func(context.Context) error {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					return nil
				})
			}
			c.OnRetire(func(ctx context.Context, _ sdk.RetireReason) {
				_ = c.Checkpoint(ctx, fmt.Appendf(nil, "from generation %d", c.Generation()))
			})
			if string(mood) != "stubborn" {
				c.OnResume(func(context.Context, []byte) error { return nil })
			}
			bashv1.RegisterBashServer(c, &moody{testBash: testBash{cwd: fmt.Sprintf("%d %s", c.Generation(), c.Restored()), c: c}, c: c})
			return nil
		})
	}
}

// init adds a plugin with a tool that has its mood as its name and is the end of the instance.
func init() {
	testPlugins["moody-tools"] = func() *sdk.Plugin {
		m := sdk.Manifest{Name: "moody-tools", Provides: []sdk.Seam{provider}}
		return sdk.Define(m, moodyConfig{}, func(c *sdk.Context, config moodyConfig) error {
			mood, _ := os.ReadFile(config.File)
			c.OnResume(func(context.Context, []byte) error { return nil })
			toolsv1.RegisterToolProviderServer(c, moodyTools{name: string(mood)})
			return nil
		})
	}
}

type moodyTools struct {
	toolsv1.UnimplementedToolProviderServer
	name string
}

func (m moodyTools) List(context.Context, *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	return &toolsv1.ListResponse{Tools: []*toolsv1.Tool{{Name: m.name}}}, nil
}

func (m moodyTools) Execute(grpc.BidiStreamingServer[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]) error {
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

type moody struct {
	testBash
	c *sdk.Context
}

// Run of "hold" claims a key and keeps the call until the instance is asked for "let go".
func (m *moody) Run(stream grpc.BidiStreamingServer[bashv1.RunRequest, bashv1.RunResponse]) error {
	return m.testBash.Run(stream)
}

// Kill ends a claim.
func (m *moody) Kill(ctx context.Context, req *bashv1.KillRequest) (*bashv1.KillResponse, error) {
	return &bashv1.KillResponse{}, m.c.Release(ctx, bashSeam, req.GetTaskId())
}

func moodyHost(t *testing.T) (h *host.Host, bash bashv1.BashClient, setMood func(string), log *syncBuffer) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mood")
	h, conn, log := run(t, "plugins:\n  - {id: shell, plugin: moody, config: {file: "+file+"}}\n  - {id: front, plugin: relay}\n")
	return h, bashv1.NewBashClient(conn), func(mood string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(mood), 0o600); err != nil {
			t.Fatal(err)
		}
	}, log
}

func where(t *testing.T, ctx context.Context, bash bashv1.BashClient) string {
	t.Helper()
	answer, err := bash.Defaults(ctx, &bashv1.DefaultsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(answer.GetCwd(), "cli@")
}

func TestReloadReplacesTheInstanceAndHandsOverItsCheckpoint(t *testing.T) {
	h, bash, _, _ := moodyHost(t)
	before, front := statusOf(t, h, "shell"), statusOf(t, h, "front")
	result, err := h.Reload("shell")
	if err != nil || result.Generation != 2 {
		t.Fatalf("got %+v, %v", result, err)
	}
	if got, want := where(t, t.Context(), bash), "2 from generation 1"; got != want {
		t.Errorf("calls go to %q, want %q", got, want)
	}
	if after := statusOf(t, h, "shell"); after.PID == before.PID || after.Phase != "active" {
		t.Errorf("got %+v, want a new process", after)
	}
	if got := statusOf(t, h, "front"); got.PID != front.PID || got.Generation != 1 {
		t.Errorf("a dependent was touched: %+v", got)
	}
	if _, err := h.Reload("nobody"); err == nil || err.Error() != `no row "nobody"` {
		t.Errorf("an unknown row: %v", err)
	}
}

func TestNoCallFailsDuringReloads(t *testing.T) {
	h, bash, _, _ := moodyHost(t)
	var calls, failed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				calls.Add(1)
				if _, err := bash.Defaults(t.Context(), &bashv1.DefaultsRequest{}); err != nil {
					failed.Add(1)
					t.Log(err)
				}
			}
		})
	}
	for range 10 {
		if _, err := h.Reload("shell"); err != nil {
			t.Error(err)
		}
	}
	cancel()
	callers.Wait()
	if failed.Load() > 0 || calls.Load() < 100 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
	if got := statusOf(t, h, "shell").Generation; got != 11 {
		t.Errorf("generation %d after 10 reloads", got)
	}
}

func TestASuccessorThatFailsIsRolledBack(t *testing.T) {
	for _, test := range []struct{ name, mood, want string }{
		{"it fails to activate", "fail", `test.yaml:2: row "shell": activate: not in the mood`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, bash, setMood, _ := moodyHost(t)
			pid := statusOf(t, h, "shell").PID
			setMood(test.mood)
			if _, err := h.Reload("shell"); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if got := where(t, t.Context(), bash); got != "1 " {
				t.Errorf("calls go to %q, want the old instance", got)
			}
			setMood("")
			if _, err := h.Reload("shell"); err != nil {
				t.Error(err)
			}
			if got := statusOf(t, h, "shell"); got.PID == pid || got.Generation != 2 {
				t.Errorf("the repaired program is not live: %+v", got)
			}
		})
	}
}

func TestAnInstanceThatCannotResumeIsStartedAnew(t *testing.T) {
	h, bash, setMood, _ := moodyHost(t)
	setMood("stubborn")
	if _, err := h.Reload("shell"); err != nil {
		t.Fatal(err)
	}
	setMood("fail")
	go setMoodWhenStarted(t, h, setMood)
	if _, err := h.Reload("shell"); err == nil {
		t.Error("a failed reload succeeded")
	}
	waitFor(t, func() bool { return statusOf(t, h, "shell").Phase == "active" })
	if got := where(t, t.Context(), bash); !strings.Contains(got, "from generation 2") {
		t.Errorf("calls go to %q, want a new instance with the checkpoint of the old one", got)
	}
}

// setMoodWhenStarted lets the program work again once its reload has failed.
func setMoodWhenStarted(t *testing.T, h *host.Host, setMood func(string)) {
	for statusOf(t, h, "shell").Phase == "active" {
	}
	setMood("stubborn")
}

func TestASuccessorThatCrashesAtOnceIsRolledBack(t *testing.T) {
	h, bash, setMood, _ := moodyHost(t)
	pid := statusOf(t, h, "shell").PID
	setMood("crash")
	if _, err := h.Reload("shell"); err != nil && !strings.Contains(err.Error(), "died") {
		t.Error(err)
	}
	waitFor(t, func() bool { s := statusOf(t, h, "shell"); return s.PID == pid && s.Phase == "active" })
	if got := where(t, t.Context(), bash); got != "1 " {
		t.Errorf("calls go to %q, want the old instance", got)
	}
}

func TestTheToolsAreThoseOfTheInstanceThatServes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mood")
	setMood := func(mood string) {
		if err := os.WriteFile(file, []byte(mood), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	setMood("first")
	h, conn, _ := run(t, "plugins:\n  - {id: tools, plugin: moody-tools, config: {file: "+file+"}}\n")
	tools := func() (names []string) {
		list, err := toolsv1.NewToolsClient(conn).List(t.Context(), &toolsv1.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.GetTools() {
			names = append(names, tool.GetName())
		}
		return names
	}
	setMood("second")
	if _, err := h.Reload("tools"); err != nil || !slices.Equal(tools(), []string{"second"}) {
		t.Fatalf("the tools are %v, %v", tools(), err)
	}
	callTool(t, conn, "second", "{}")
	waitFor(t, func() bool { return slices.Equal(tools(), []string{"first"}) })
	if s := statusOf(t, h, "tools"); s.Generation != 1 && s.Phase != "active" {
		t.Errorf("it is %+v", s)
	}
}

func TestAClaimKeepsTheOldInstance(t *testing.T) {
	h, bash, _, _ := moodyHost(t)
	old := statusOf(t, h, "shell").PID
	key, err := runBash(t.Context(), bash, "claim")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Reload("shell"); err != nil {
		t.Fatal(err)
	}
	claimed := sdk.WithClaim(t.Context(), key)
	if got := where(t, claimed, bash); got != "1 " {
		t.Errorf("a call with the claim goes to %q, want the old instance", got)
	}
	if got := where(t, t.Context(), bash); got != "2 from generation 1" {
		t.Errorf("a call without goes to %q, want the new one", got)
	}
	if next, err := runBash(t.Context(), bash, "claim"); err != nil || next != "bash-2" {
		t.Errorf("the new instance claimed %q, %v; ids go on", next, err)
	}
	if _, err := bash.Kill(claimed, &bashv1.KillRequest{TaskId: key}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return syscall.Kill(old, 0) != nil })
}

func TestACallInFlightEndsInTheOldInstance(t *testing.T) {
	h, bash, _, _ := moodyHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "ended")
	stream, err := bash.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "wait " + file}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	old := statusOf(t, h, "shell").PID
	if _, err := h.Reload("shell"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(old, 0); err != nil {
		t.Error("the old instance is gone while a call is in flight")
	}
	cancel()
	waitFor(t, func() bool { _, err := os.Stat(file); return err == nil })
	waitFor(t, func() bool { return syscall.Kill(old, 0) != nil })
}
