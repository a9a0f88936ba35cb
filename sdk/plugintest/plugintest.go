// Package plugintest runs a plugin in a test: activated as the host would, with stand-ins for the seams it injects, its own
// seams behind real sockets; in the test's process, or, to be stopped and killed, in one of its own.
package plugintest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// Options say what the plugin finds.
type Options struct {
	// Config is the row's `config`: a struct or map to be marshalled, or nil.
	Config any
	// Seams registers the stand-ins of the seams that the plugin injects. No injection is checked. May be nil.
	Seams func(grpc.ServiceRegistrar)
	// Host is shared by the instances of one test; nil: a new one.
	Host *Host
	// Checkpoint is what a previous instance left.
	Checkpoint []byte
	// Crash says how the previous instance died; empty: it did not.
	Crash string
}

// Instance is a running instance of a plugin.
type Instance struct {
	t       testing.TB
	server  pluginv1.PluginServer
	process *process // nil: in the test's
	conn    *grpc.ClientConn
	stopped sync.Once
	service *Host
	host    *grpc.Server // serves it and the seams
	hosting chan struct{}
}

// Start activates the plugin and deactivates it at the end of the test. It fails the test when activation fails; see [Activate].
func Start(t testing.TB, p *sdk.Plugin, o Options) *Instance {
	t.Helper()
	i, err := Activate(t, p, o)
	if err != nil {
		t.Fatalf("activate %s: %v", p.Name(), err)
	}
	return i
}

// Activate is Start for tests of activations that fail.
func Activate(t testing.TB, p *sdk.Plugin, o Options) (*Instance, error) {
	t.Helper()
	log := hclog.New(&hclog.LoggerOptions{Name: p.Name(), Level: hclog.Debug, Output: testWriter{t}})
	i := &Instance{t: t, server: sdk.NewInstance(p, log, os.Getpid())}
	return i, i.activate(p.Name(), socketDir(t), o)
}

// socketDir is a directory for sockets. t.TempDir can be longer than a socket's path may be.
func socketDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "dsh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// activate serves what the instance finds, and activates it.
func (i *Instance) activate(row, dir string, o Options) error {
	if o.Host == nil {
		o.Host = &Host{}
	}
	i.service = o.Host
	i.hosting, i.host = make(chan struct{}), grpc.NewServer(api.ServerOptions()...)
	pluginv1.RegisterHostServer(i.host, o.Host)
	if o.Seams != nil {
		o.Seams(i.host)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "host"))
	if err != nil {
		i.t.Fatal(err)
	}
	go func() {
		defer close(i.hosting)
		_ = i.host.Serve(listener)
	}()
	i.t.Cleanup(i.Stop)

	config := []byte("{}")
	if o.Config != nil {
		if config, err = json.Marshal(o.Config); err != nil {
			i.t.Fatal(err)
		}
	}
	if _, err := i.server.Describe(i.t.Context(), &pluginv1.DescribeRequest{}); err != nil {
		return err
	}
	_, err = i.server.Activate(i.t.Context(), &pluginv1.ActivateRequest{
		Row: row, Generation: 1, Config: string(config), Checkpoint: o.Checkpoint, Crash: o.Crash,
		HostSocket: filepath.Join(dir, "host"), SeamSocket: filepath.Join(dir, "seams"),
	})
	if err != nil {
		return err
	}
	if i.conn, err = api.Dial(filepath.Join(dir, "seams")); err != nil {
		i.t.Fatal(err)
	}
	return nil
}

// Conn is the connection to the plugin's seams, for generated clients.
func (i *Instance) Conn() grpc.ClientConnInterface { return i.conn }

// Retire asks the instance to retire.
func (i *Instance) Retire(reason sdk.RetireReason) {
	i.t.Helper()
	if _, err := i.server.Retire(context.Background(), &pluginv1.RetireRequest{Reason: reason}); err != nil {
		i.t.Errorf("retire: %v", err)
	}
}

// Resume takes a retired instance back into service, with the host's last checkpoint.
func (i *Instance) Resume() {
	i.t.Helper()
	if _, err := i.server.Resume(context.Background(), &pluginv1.ResumeRequest{Checkpoint: i.service.LastCheckpoint()}); err != nil {
		i.t.Errorf("resume: %v", err)
	}
}

// Stop deactivates the instance. It fails the test when something could not be undone within ten seconds.
func (i *Instance) Stop() {
	i.stopped.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if i.process == nil || !i.process.dead {
			answer, err := i.server.Deactivate(ctx, &pluginv1.DeactivateRequest{})
			if err != nil || len(answer.GetErrors()) > 0 {
				i.t.Errorf("deactivate: %v %v", err, answer.GetErrors())
			}
		}
		if i.conn != nil {
			i.conn.Close()
		}
		i.host.Stop()
		<-i.hosting
		if i.process != nil {
			i.process.end()
		}
	})
}

// Host stands in for the host's own service: claims and checkpoints. The zero value is ready.
type Host struct {
	pluginv1.UnimplementedHostServer
	// TookOver is called when an instance has taken a claim over, before it is told so. May be nil.
	TookOver func(key string)

	mu         sync.Mutex
	allotted   map[string]int
	claims     map[string]bool
	checkpoint []byte
}

// Claim allots the next number of the prefix.
func (h *Host) Claim(_ context.Context, req *pluginv1.ClaimRequest) (*pluginv1.ClaimResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.allotted == nil {
		h.allotted, h.claims = map[string]int{}, map[string]bool{}
	}
	h.allotted[req.GetPrefix()]++
	key := fmt.Sprintf("%s-%d", req.GetPrefix(), h.allotted[req.GetPrefix()])
	h.claims[key] = true
	return &pluginv1.ClaimResponse{Key: key}, nil
}

// TakeOver makes a claim the instance's.
func (h *Host) TakeOver(_ context.Context, req *pluginv1.TakeOverRequest) (*pluginv1.TakeOverResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims == nil {
		h.allotted, h.claims = map[string]int{}, map[string]bool{}
	}
	h.claims[req.GetKey()] = true
	if h.TookOver != nil {
		h.TookOver(req.GetKey())
	}
	return &pluginv1.TakeOverResponse{}, nil
}

// Allotted tells whether Claim has allotted the key.
func (h *Host) Allotted(_ context.Context, req *pluginv1.AllottedRequest) (*pluginv1.AllottedResponse, error) {
	prefix, number, _ := strings.Cut(req.GetKey(), "-")
	n, err := strconv.Atoi(number)
	h.mu.Lock()
	defer h.mu.Unlock()
	return &pluginv1.AllottedResponse{Allotted: err == nil && n > 0 && n <= h.allotted[prefix]}, nil
}

// Release forgets a claim.
func (h *Host) Release(_ context.Context, req *pluginv1.ReleaseRequest) (*pluginv1.ReleaseResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.claims, req.GetKey())
	return &pluginv1.ReleaseResponse{}, nil
}

// Checkpoint keeps the state.
func (h *Host) Checkpoint(_ context.Context, req *pluginv1.CheckpointRequest) (*pluginv1.CheckpointResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkpoint = req.GetState()
	return &pluginv1.CheckpointResponse{}, nil
}

// Claims are the keys that are held.
func (h *Host) Claims() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var keys []string
	for key := range h.claims {
		keys = append(keys, key)
	}
	return keys
}

// LastCheckpoint is what an instance left last.
func (h *Host) LastCheckpoint() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkpoint
}

// testWriter logs to the test.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(line []byte) (int, error) {
	fmt.Fprintf(w.t.Output(), "%s", line)
	return len(line), nil
}
