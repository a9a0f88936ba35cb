// Package process runs one plugin process: start, handshake, stop, and the report of how it died.
package process

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

const (
	// startTimeout is how long a program has for the handshake.
	startTimeout = 10 * time.Second
	// killTimeout is how long a stopped process has to exit before it is killed.
	killTimeout = 500 * time.Millisecond
	// logLineLimit is the longest line of a plugin's log that is kept in one piece; go-plugin cuts at 64 KiB unless told.
	logLineLimit = 1 << 20
)

// Spec says what to start.
type Spec struct {
	// Argv is the program and its arguments.
	Argv []string
	// Env is the whole environment, but for what the handshake adds.
	Env []string
	// SocketDir is a private directory with a short path for the process's own sockets.
	SocketDir string
	// Log takes what the process logs and prints.
	Log hclog.Logger
}

// Process is a running plugin process. Its methods may be called from any goroutine.
type Process struct {
	client *plugin.Client
	runner *processRunner
	plugin pluginv1.PluginClient
	log    hclog.Logger
	stop   sync.Once
}

// Start starts a plugin process and shakes hands with it. On error nothing of it is left.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if _, err := exec.LookPath(spec.Argv[0]); err != nil {
		return nil, fmt.Errorf("cannot start: %w", err)
	}
	p := &Process{log: spec.Log, runner: newRunner(spec)}
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:     api.Handshake,
		Plugins:             plugin.PluginSet{"plugin": lifeCycle{}},
		AllowedProtocols:    []plugin.Protocol{plugin.ProtocolGRPC},
		SkipHostEnv:         true,
		StartTimeout:        startTimeout,
		Logger:              goPluginLog{spec.Log},
		PluginLogBufferSize: logLineLimit,
		UnixSocketConfig:    &plugin.UnixSocketConfig{TempDir: spec.SocketDir},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(api.MaxMessageBytes), grpc.MaxCallSendMsgSize(api.MaxMessageBytes)),
		},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
			p.runner.cmd.Env = append(append(p.runner.cmd.Env, cmd.Env...), plugin.EnvUnixSocketDir+"="+socketDir)
			return p.runner, nil
		},
	})
	if err := p.handshake(ctx); err != nil {
		p.Kill()
		return nil, p.explain(err)
	}
	return p, nil
}

// handshake starts the process; it is killed when the context ends first, because go-plugin's start cannot be cancelled.
func (p *Process) handshake(ctx context.Context) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-ctx.Done():
			p.runner.killGroup()
		case <-done:
		}
	}()
	protocol, err := p.client.Client()
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	raw, err := protocol.Dispense("plugin")
	if err != nil {
		return err
	}
	p.plugin = raw.(pluginv1.PluginClient)
	return nil
}

// explain says why a start failed, in one line, with what the process left behind.
func (p *Process) explain(err error) error {
	message, rest, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	line, noHandshake := strings.CutPrefix(message, "Unrecognized remote plugin message:")
	noLine := strings.HasPrefix(rest, "Failed to read any lines")
	left := ""
	switch {
	case noHandshake && !noLine: // how it ended is our doing
		message = fmt.Sprintf("its stdout begins with %.200q and not with the handshake of a plugin of dsh", strings.TrimSpace(line))
		left = p.runner.lastWords()
	case !p.runner.exited():
	case noLine, message == "plugin exited before we could connect":
		message = "it exited before its handshake"
		fallthrough
	default:
		left = p.runner.report()
	}
	if left != "" {
		message += " (" + left + ")"
	}
	return fmt.Errorf("cannot start: %s", message)
}

// Plugin is the client of the life-cycle service.
func (p *Process) Plugin() pluginv1.PluginClient { return p.plugin }

// PID is the process id.
func (p *Process) PID() int { return p.runner.processID() }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.runner.done }

// Report says how the process ended, with the last lines it wrote to stderr. It waits for the end.
func (p *Process) Report() string { return p.runner.report() }

// Stop ends the process: go-plugin's shutdown, then SIGKILL to its group. It returns when the process is gone.
func (p *Process) Stop() {
	p.stop.Do(func() {
		stopped := make(chan struct{})
		go func() { // Kill asks the plugin without a deadline, and waits for ever for one that is stopped
			p.client.Kill()
			close(stopped)
		}()
		timer := time.NewTimer(killTimeout)
		defer timer.Stop()
		select {
		case <-p.runner.done:
		case <-timer.C:
			p.log.Warn("did not exit when asked; killed", "pid", p.PID())
		}
		p.runner.killGroup()
		<-p.runner.done
		<-stopped
	})
}

// Kill ends the process at once.
func (p *Process) Kill() {
	p.stop.Do(func() {
		p.runner.killGroup()
		p.client.Kill()
	})
}

type lifeCycle struct{ plugin.NetRPCUnsupportedPlugin }

func (lifeCycle) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return fmt.Errorf("the host serves no plugin")
}

func (lifeCycle) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return pluginv1.NewPluginClient(conn), nil
}
