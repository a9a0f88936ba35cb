package control

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/numbers"
	"github.com/dsh-go/dsh/host/router"
	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

// fakeHost answers as its fields say.
type fakeHost struct {
	rows   []Row
	reload func(row string) (Reload, error)
	change func() (Change, error)
	stop   func()
}

func (f *fakeHost) Status() []Row                     { return f.rows }
func (f *fakeHost) Reload(row string) (Reload, error) { return f.reload(row) }
func (f *fakeHost) ReloadConfig() (Change, error)     { return f.change() }
func (f *fakeHost) Stop()                             { f.stop() }

// serve opens a control socket as a host does.
func serve(t *testing.T, host Host, info Info, logs *Logs) (c *Client, socket string, endpoint *router.Endpoint) {
	t.Helper()
	socket = filepath.Join(shortDir(t), SocketName)
	endpoint, err := router.New(numbers.InMemory()).Listen(socket, 0, &router.Caller{Row: "cli"}, func(s grpc.ServiceRegistrar) {
		Register(s, host, info, logs)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(endpoint.Close)
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return NewClient(conn), socket, endpoint
}

// shortDir is a directory for sockets: the path of a test's own may be too long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dsh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestStatusArrivesWhole(t *testing.T) {
	at := time.Date(2026, 11, 30, 18, 27, 4, 118_000_000, time.UTC)
	want := Status{
		Host: Info{PID: 12, Config: "/home/ann/dsh.yaml", Started: at, Seams: []string{"events", "tools"}, Socket: "/s/control"},
		Rows: []Row{
			{
				ID: "tool-bash", Plugin: "tool-bash", Phase: "active", Since: at, Generation: 3, PID: 4242, RSS: 33 << 20, Restarts: 2,
				Provides: []string{"tool-provider", "other"}, Contributes: []string{"tool-provider"},
				Injects: []string{"bash", "events"}, Optional: []string{"events"},
				Retiring: []Retiring{{Generation: 2, PID: 4141, RSS: 32 << 20, KeptBy: "bash-1, 1 calls"}, {Generation: 1, PID: 4040}},
			},
			{ID: "mine", Phase: "pending", Reason: `dsh.yaml:4: row "mine": needs seam "bash", which no row provides`},
		},
	}
	c, _, _ := serve(t, &fakeHost{rows: want.Rows}, want.Host, NewLogs())
	got, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the status is\n%+v\nnot\n%+v", got, want)
	}
}

func TestReload(t *testing.T) {
	want := Reload{Row: "bash", Generation: 2, Started: 35 * time.Millisecond, Held: 3100 * time.Microsecond}
	c, _, _ := serve(t, &fakeHost{reload: func(row string) (Reload, error) {
		if row != "bash" {
			return Reload{}, errors.New(`dsh.yaml:2: row "llm": activate: the port is taken`)
		}
		return want, nil
	}}, Info{}, NewLogs())
	got, err := c.Reload(t.Context(), "bash")
	if err != nil || got != want {
		t.Errorf("the reload came to %+v, %v, not to %+v", got, err, want)
	}
	const message = `dsh.yaml:2: row "llm": activate: the port is taken`
	if _, err = c.Reload(t.Context(), "llm"); err == nil || err.Error() != message {
		t.Errorf("the error is %v, not just what the host says: %s", err, message)
	}
}

func TestReloadOfTheConfiguration(t *testing.T) {
	want := Change{Added: []string{"a"}, Changed: []string{"b", "c"}, Removed: []string{"d"}}
	var fault error
	c, _, _ := serve(t, &fakeHost{change: func() (Change, error) { return want, fault }}, Info{}, NewLogs())
	got, err := c.ReloadConfig(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the change is %+v, %v, not %+v", got, err, want)
	}
	fault = errors.New("the running configuration stays: dsh.yaml:3: unknown key")
	if _, err = c.ReloadConfig(t.Context()); err == nil || err.Error() != fault.Error() {
		t.Errorf("the error is %v, not just what the host says: %v", err, fault)
	}
}

func TestStopReturnsWhenTheHostHasClosedItsSocket(t *testing.T) {
	begun, returned := make(chan struct{}), make(chan error, 1)
	c, socket, endpoint := serve(t, &fakeHost{stop: func() { close(begun) }}, Info{}, NewLogs())
	go func() { returned <- c.Stop(t.Context()) }()
	<-begun
	if _, err := c.rpc.Logs(t.Context(), &controlv1.LogsRequest{}); err != nil {
		t.Errorf("a host that stops does not answer: %v", err)
	}
	select {
	case err := <-returned:
		t.Fatalf("it returned before the host was gone: %v", err)
	default:
	}
	endpoint.Close()
	if err := <-returned; err != nil {
		t.Error(err)
	}
	if _, err := Dial(socket); err == nil || err.Error() != "no dsh listens at "+socket+": no such file or directory" {
		t.Errorf("dialling the socket of a host that is gone gives %v", err)
	}
}

func TestStopFailsWhenItIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _, _ := serve(t, &fakeHost{stop: cancel}, Info{}, NewLogs())
	if err := c.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a stop that was given up says %v", err)
	}
}

func TestFollowersHearOfWhatIsLoggedUntilTheHostEnds(t *testing.T) {
	logs := NewLogs()
	logs.Accept("dsh", hclog.Info, "before")
	c, _, endpoint := serve(t, &fakeHost{}, Info{}, logs)
	messages, returned := make(chan string), make(chan error, 1)
	go func() {
		returned <- c.Logs(t.Context(), &controlv1.LogsRequest{Tail: 10, Follow: true}, func(answer *controlv1.LogsResponse) error {
			messages <- answer.GetEntry().GetMessage()
			return nil
		})
	}()
	for _, want := range []string{"before", "first", "second"} {
		if want != "before" {
			logs.Accept("dsh", hclog.Info, want)
		}
		if got := <-messages; got != want {
			t.Errorf("the follower got %q, not %q", got, want)
		}
	}
	endpoint.Close()
	if err := <-returned; err != nil {
		t.Errorf("following ended with the host: %v", err)
	}
}
