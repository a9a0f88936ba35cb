package sdk

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/peer"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// unwindLimit is how long an instance may take to undo its effects when its host has died.
const unwindLimit = 2 * time.Second

// Serve runs a plugin until its host stops it, then exits the process. It is all that a plugin's main does. What the plugin
// prints goes to the host's log.
func Serve(p *Plugin) {
	if os.Getenv(api.Handshake.MagicCookieKey) != api.Handshake.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "%s is a plugin of dsh and runs only below it; name it in a configuration:\n\n"+
			"plugins:\n  - id: %s\n    command: [%s]\n", p.Name(), p.Name(), os.Args[0])
		os.Exit(2)
	}
	log := hclog.New(&hclog.LoggerOptions{Name: p.Name(), Level: hclog.Trace, Output: os.Stderr, JSONFormat: true})
	hostPID, err := strconv.Atoi(os.Getenv(api.EnvHostPID))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", p.Name(), api.EnvHostPID, err)
		os.Exit(2)
	}
	handshake, err := privateStdout()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: set up stdout: %v\n", p.Name(), err)
		os.Exit(2)
	}
	os.Stdout = handshake
	instance := NewInstance(p, log, hostPID)
	go exitWithHost(instance, log)
	stderr := os.Stderr
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: api.Handshake,
		Plugins:         plugin.PluginSet{"plugin": lifeCycle{server: &process{PluginServer: instance, stderr: stderr}}},
		Logger:          hclog.New(&hclog.LoggerOptions{Name: p.Name(), Level: hclog.Info, Output: stderr, JSONFormat: true}),
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			options = append(options, api.ServerOptions()...)
			return grpc.NewServer(append(options, grpc.Creds(peer.Credentials(func() int { return hostPID })))...)
		},
	})
	os.Exit(0)
}

// privateStdout keeps the file that the handshake line goes to and points descriptor 1 at the log, so that a print of this
// process or of a child can never be taken for a part of the handshake.
func privateStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := dup2(2, 1); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "handshake"), nil
}

// process is the instance of a process whose standard streams go-plugin has taken.
type process struct {
	pluginv1.PluginServer
	stderr *os.File
	once   sync.Once
}

// Describe gives the streams back: go-plugin carries prints by calls, which a crash would lose. It took them before it served its
// first call.
func (p *process) Describe(ctx context.Context, req *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	p.once.Do(func() { os.Stdout, os.Stderr = p.stderr, p.stderr })
	return p.PluginServer.Describe(ctx, req)
}

// Activate hides the process before it can be called. Not earlier: activation may want to try what hiding forbids, as is the start
// of a process in a user namespace.
func (p *process) Activate(ctx context.Context, req *pluginv1.ActivateRequest) (*pluginv1.ActivateResponse, error) {
	answer, err := p.PluginServer.Activate(ctx, req)
	if err == nil {
		Hide()
	}
	return answer, err
}

// exitWithHost ends the process when the host is gone. The host holds the other end of the liveness pipe and never writes.
func exitWithHost(instance pluginv1.PluginServer, log hclog.Logger) {
	fd, err := strconv.Atoi(os.Getenv(api.EnvLivenessFD))
	if err != nil {
		return
	}
	unix.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "liveness")
	_, _ = pipe.Read(make([]byte, 1))
	log.Warn("the host is gone")
	ctx, cancel := context.WithTimeout(context.Background(), unwindLimit)
	defer cancel()
	_, _ = instance.Retire(ctx, &pluginv1.RetireRequest{Reason: pluginv1.RetireRequest_REASON_SHUTDOWN})
	_, _ = instance.Deactivate(ctx, &pluginv1.DeactivateRequest{})
	os.Exit(1)
}

// lifeCycle registers the life-cycle service with go-plugin.
type lifeCycle struct {
	plugin.NetRPCUnsupportedPlugin
	server pluginv1.PluginServer
}

func (l lifeCycle) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pluginv1.RegisterPluginServer(s, l.server)
	return nil
}

func (l lifeCycle) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin is no client of itself")
}
