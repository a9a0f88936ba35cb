package plugintest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// Main serves the plugin in a process that [StartProcess] started, and never returns then. It comes first in the TestMain of a
// package that uses StartProcess.
func Main(p *sdk.Plugin) {
	if os.Getenv(api.Handshake.MagicCookieKey) != "" {
		sdk.Serve(p)
	}
}

// process is this test program, started again to serve the plugin.
type process struct {
	cmd      *exec.Cmd
	life     *grpc.ClientConn
	liveness *os.File // its end ends the process
	dead     bool
}

// StartProcess is [Start] with the instance in a process of its own, which serves what the package's TestMain gives to [Main].
func StartProcess(t testing.TB, row string, o Options) *Instance {
	t.Helper()
	dir := socketDir(t)
	theirs, liveness, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	p := &process{cmd: exec.Command(os.Args[0]), liveness: liveness}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Env = append(os.Environ(), api.Handshake.MagicCookieKey+"="+api.Handshake.MagicCookieValue,
		api.EnvHostPID+"="+strconv.Itoa(os.Getpid()), api.EnvLivenessFD+"=3", plugin.EnvUnixSocketDir+"="+dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = testWriter{t}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	handshake, err := bufio.NewReader(stdout).ReadString('\n')
	fields := strings.Split(handshake, "|")
	if err != nil || len(fields) < 4 {
		t.Fatalf("start the plugin's process: %v: handshake %q", err, handshake)
	}
	if p.life, err = api.Dial(fields[3]); err != nil {
		t.Fatal(err)
	}
	i := &Instance{t: t, server: remote{client: pluginv1.NewPluginClient(p.life)}, process: p}
	if err := i.activate(row, dir, o); err != nil {
		t.Fatalf("activate %s: %v", row, err)
	}
	return i
}

// PID is the id of the instance's process.
func (i *Instance) PID() int {
	if i.process == nil {
		return os.Getpid()
	}
	return i.process.cmd.Process.Pid
}

// Kill kills the instance's process, and nothing else. It must be one of its own.
func (i *Instance) Kill() { i.process.end() }

// end ends the process, once.
func (p *process) end() {
	if p.dead {
		return
	}
	p.dead = true
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.liveness.Close()
	if p.life != nil {
		p.life.Close()
	}
}

// remote passes the life-cycle calls to a process.
type remote struct {
	pluginv1.UnimplementedPluginServer
	client pluginv1.PluginClient
}

func (r remote) Describe(ctx context.Context, req *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	return r.client.Describe(ctx, req)
}

func (r remote) Activate(ctx context.Context, req *pluginv1.ActivateRequest) (*pluginv1.ActivateResponse, error) {
	return r.client.Activate(ctx, req)
}

func (r remote) Retire(ctx context.Context, req *pluginv1.RetireRequest) (*pluginv1.RetireResponse, error) {
	return r.client.Retire(ctx, req)
}

func (r remote) Deactivate(ctx context.Context, req *pluginv1.DeactivateRequest) (*pluginv1.DeactivateResponse, error) {
	return r.client.Deactivate(ctx, req)
}

func (r remote) Resume(ctx context.Context, req *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
	return r.client.Resume(ctx, req)
}
