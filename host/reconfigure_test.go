package host_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
)

// fileHost runs a configuration from a file that the test changes.
func fileHost(t *testing.T, yaml string) (h *host.Host, bash bashv1.BashClient, change func(string)) {
	t.Helper()
	h, conn, change := fileHostConn(t, yaml)
	return h, bashv1.NewBashClient(conn), change
}

func fileHostConn(t *testing.T, yaml string) (h *host.Host, conn *grpc.ClientConn, change func(string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.yaml")
	write := func(yaml string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(yaml)
	o, _ := options(t, yaml)
	o.Load = func() (*config.Config, error) { return config.Load(file, os.LookupEnv) }
	h, conn = begin(t, o)
	return h, conn, write
}

func change(t *testing.T, h *host.Host) host.Change {
	t.Helper()
	c, err := h.ReloadConfig()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pids(h *host.Host) map[string]int {
	m := map[string]int{}
	for _, r := range h.Status() {
		m[r.ID] = r.PID
	}
	return m
}

func TestOnlyTheRowThatChangedIsTouched(t *testing.T) {
	rows := twoRows
	for n := range 18 {
		rows += fmt.Sprintf("  - {id: hook-%d, plugin: hook}\n", n)
	}
	h, bash, write := fileHost(t, rows)
	before := pids(h)
	write("# a comment\n" + rows)
	if c := change(t, h); len(c.Added)+len(c.Changed)+len(c.Removed) != 0 {
		t.Errorf("a comment changed %+v", c)
	}
	write(strings.ReplaceAll(rows, "/somewhere", "/elsewhere"))
	if c := change(t, h); len(c.Changed) != 1 || c.Changed[0] != "shell" || len(c.Added)+len(c.Removed) != 0 {
		t.Errorf("got %+v", c)
	}
	after := pids(h)
	if len(after) != 20 || before["shell"] == after["shell"] {
		t.Errorf("processes were %v and are %v", before, after)
	}
	before["shell"] = after["shell"]
	if !maps.Equal(before, after) {
		t.Errorf("others changed too: %v, %v", before, after)
	}
	if got := where(t, t.Context(), bash); got != "/elsewhere" {
		t.Errorf("the new entry is not in force: %q", got)
	}
}

func TestRowsAreAddedRemovedDisabledAndEnabled(t *testing.T) {
	h, _, write := fileHost(t, twoRows)
	front := statusOf(t, h, "front").PID
	const hook = "  - {id: policy, plugin: hook}\n"
	write(twoRows + hook)
	change(t, h)
	if got := statusOf(t, h, "policy"); got.Phase != "active" {
		t.Errorf("added: %+v", got)
	}
	policy := statusOf(t, h, "policy").PID
	write(twoRows + strings.ReplaceAll(hook, "}", ", disabled: true}"))
	change(t, h)
	if got := statusOf(t, h, "policy"); got.Phase != "disabled" {
		t.Errorf("disabled: %+v", got)
	}
	waitFor(t, func() bool { return syscall.Kill(policy, 0) != nil })
	write(twoRows + hook)
	change(t, h)
	if got := statusOf(t, h, "policy"); got.Phase != "active" {
		t.Errorf("enabled: %+v", got)
	}
	write(twoRows)
	change(t, h)
	if rows := h.Status(); len(rows) != 2 || statusOf(t, h, "front").PID != front {
		t.Errorf("removed: %+v", rows)
	}
}

func TestToolsThatComeOrGoAreAnnounced(t *testing.T) {
	h, conn, write := fileHostConn(t, "plugins:\n  - {id: shell, plugin: bash}\n")
	stream, err := eventsv1.NewEventsClient(conn).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&eventsv1.SubscribeRequest{Request: &eventsv1.SubscribeRequest_Open_{
		Open: &eventsv1.SubscribeRequest_Open{Topics: []string{"tools.changed"}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil { // opened
		t.Fatal(err)
	}
	for _, yaml := range []string{"plugins:\n  - {id: shell, plugin: bash}\n  - {id: front, plugin: relay}\n", "plugins:\n  - {id: shell, plugin: bash}\n"} {
		write(yaml)
		change(t, h)
		if got, err := stream.Recv(); err != nil || got.GetEvent().GetTopic() != "tools.changed" || got.GetEvent().GetPublisher() != "host" {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

func TestASeamGoesToAnotherRowWhileItsUsersServe(t *testing.T) {
	h, bash, write := fileHost(t, twoRows)
	front, old := statusOf(t, h, "front").PID, statusOf(t, h, "shell").PID
	key, err := runBash(t.Context(), bash, "claim")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var caller sync.WaitGroup
	caller.Go(func() {
		for ctx.Err() == nil {
			if _, err := bash.Defaults(t.Context(), &bashv1.DefaultsRequest{}); err != nil {
				t.Error(err)
			}
		}
	})
	write("plugins:\n  - {id: front, plugin: relay}\n  - {id: other, plugin: moody}\n")
	c := change(t, h)
	cancel()
	caller.Wait()
	if len(c.Added) != 1 || len(c.Removed) != 1 || statusOf(t, h, "front").PID != front || statusOf(t, h, "other").Phase != "active" {
		t.Errorf("got %+v, rows %+v", c, h.Status())
	}
	if got := where(t, t.Context(), bash); !strings.HasPrefix(got, "2 ") {
		t.Errorf("calls go to %q, want the new row", got)
	}
	if got := where(t, sdk.WithClaim(t.Context(), key), bash); got != "/somewhere" {
		t.Errorf("a claim goes to %q, want the old row's instance", got)
	}
	if syscall.Kill(old, 0) != nil {
		t.Error("the old instance is gone although it holds a claim")
	}
}

func TestAChangeThatFailsLeavesTheOldConfiguration(t *testing.T) {
	for _, test := range []struct{ name, yaml, want string }{
		{"broken YAML", "plugins: [", "the running configuration stays: "},
		{"a misspelt key", twoRows + "    wonderful: 1\n", `unknown key "wonderful"`},
		{"a value that does not fit", strings.ReplaceAll(twoRows, "/somewhere", "7"), `row "shell": config.cwd must be a string, not a number`},
		{"a provider that is needed is removed", "plugins:\n  - {id: front, plugin: relay}\n", `row "front": needs seam "bash", which no row provides`},
		{"a second provider", twoRows + "  - {id: twin, plugin: bash}\n", `row "twin": seam "bash" is already provided by row "shell"`},
		{"an activation that fails", twoRows + "  - {id: bad, plugin: broken}\n", `row "bad": activate: no luck today`},
		{"one of two rows fails", strings.ReplaceAll(twoRows, "/somewhere", "/elsewhere") + "  - {id: bad, plugin: broken}\n", `row "bad": activate: no luck today`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, bash, write := fileHost(t, twoRows)
			write(test.yaml)
			if _, err := h.ReloadConfig(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			waitFor(t, func() bool { return where(t, t.Context(), bash) == "/somewhere" })
			if rows := h.Status(); len(rows) != 2 || rows[0].Phase != "active" || rows[1].Phase != "active" {
				t.Errorf("got %+v", rows)
			}
			write(twoRows + "  - {id: policy, plugin: hook}\n")
			if c := change(t, h); len(c.Added) != 1 {
				t.Errorf("the repaired file: %+v", c)
			}
		})
	}
}
