package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/process"
	"github.com/dsh-go/dsh/host/router"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// Time limits of the life-cycle calls.
const (
	describeTimeout   = 10 * time.Second
	activateTimeout   = 30 * time.Second
	deactivateTimeout = 10 * time.Second
	// shutdownTimeout replaces deactivateTimeout when the host stops: it is to be gone within a second when plugins behave.
	shutdownTimeout = 2 * time.Second
)

// instance is one process of a row, from its start to its end. Its steps are called one after the other, off the host's goroutine;
// mu guards what two steps, or a step and the end of the process, share.
type instance struct {
	row      config.Row
	number   int // unique in this host: the sockets are named after it
	host     *Host
	log      hclog.Logger
	process  *process.Process
	manifest *pluginv1.Manifest
	program  string // what was built of the row's source; "": it has none
	isBuilt  bool   // the build that led to it was its own: another would find nothing to do

	generation int // since its activation

	mu       sync.Mutex
	target   *router.Target // nil: not active
	endpoint *router.Endpoint
}

// start starts the process, asks it for its manifest, and checks the row's config against that.
func (i *instance) start(ctx context.Context, argv, env []string) error {
	dir := filepath.Join(i.host.dir, fmt.Sprint(i.number))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the socket directory: %w", err)
	}
	p, err := process.Start(ctx, process.Spec{Argv: argv, Env: env, SocketDir: dir, Log: i.log})
	if err != nil {
		return err
	}
	i.process = p
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	answer, err := p.Plugin().Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return i.explain("describe", err)
	}
	i.manifest = answer.GetManifest()
	if i.manifest.GetName() == "" {
		return errors.New("describe: the manifest lacks a name")
	}
	return i.row.Validate(i.manifest.GetConfigSchema())
}

// activate gives the instance its socket to the host, activates it, and lets calls go to it.
func (i *instance) activate(ctx context.Context, generation int, checkpoint []byte, crash string) error {
	i.generation = generation
	hostSocket := filepath.Join(i.host.dir, fmt.Sprint(i.number), "host")
	seamSocket := filepath.Join(i.host.dir, fmt.Sprint(i.number), "seams")
	target := &router.Target{Row: i.row.ID, Exited: i.process.Exited(), Report: i.process.Report}
	caller := &router.Caller{Row: i.row.ID, Injects: append([]*pluginv1.Inject{}, i.manifest.GetInjects()...)}
	endpoint, err := i.host.router.Listen(hostSocket, i.process.PID(), caller, func(s grpc.ServiceRegistrar) {
		i.host.registerSeams(s)
		pluginv1.RegisterHostServer(s, &router.HostService{
			Router: i.host.router, Provides: i.manifest.GetProvides(), Target: target,
			Keep: func(state []byte) { i.host.keepCheckpoint(i, state) },
		})
	})
	if err != nil {
		return err
	}
	if target.Conn, err = api.Dial(seamSocket); err != nil {
		endpoint.Close()
		return fmt.Errorf("dial its seams: %w", err)
	}
	i.mu.Lock()
	i.target, i.endpoint = target, endpoint
	i.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, activateTimeout)
	defer cancel()
	_, err = i.process.Plugin().Activate(ctx, &pluginv1.ActivateRequest{
		Row: i.row.ID, Generation: uint32(generation), Config: i.row.Config(), Checkpoint: checkpoint,
		HostSocket: hostSocket, SeamSocket: seamSocket, Crash: crash,
	})
	if err == nil {
		err = i.provide(ctx)
	}
	if err != nil {
		err = i.explain("activate", err)
		i.withdraw()
	}
	return err
}

// provide lets calls of the instance's seams go to it.
func (i *instance) provide(ctx context.Context) error {
	i.route()
	return i.contribute(ctx)
}

// contribute makes the tools those of the instance, which serves, and lets it rule over calls.
func (i *instance) contribute(ctx context.Context) error {
	for _, s := range i.manifest.GetProvides() {
		switch s.GetService() {
		case hookService:
			i.host.tools.AddHook(i.row.ID, i.host.router.Conn(hookService, i.row.ID))
			if err := i.host.tools.LearnModes(ctx, i.row.ID); err != nil {
				return fmt.Errorf("list its modes: %w", err)
			}
		case providerService:
			if err := i.host.tools.Add(ctx, i.row.ID, i.host.router.Conn(providerService, i.row.ID)); err != nil {
				return fmt.Errorf("list its tools: %w", err)
			}
		}
	}
	return nil
}

// route lets calls of the instance's seams go to it, those that are held first.
func (i *instance) route() {
	target := i.currentTarget()
	if target == nil {
		return
	}
	for _, name := range routeNames(i.manifest, i.row.ID) {
		i.host.router.Provide(name, target)
	}
}

// currentTarget is where the instance takes calls; nil when it is not active.
func (i *instance) currentTarget() *router.Target {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.target
}

// withdraw ends all calls from and to the instance, and what it claimed.
func (i *instance) withdraw() {
	i.mu.Lock()
	target, endpoint := i.target, i.endpoint
	i.target, i.endpoint = nil, nil
	i.mu.Unlock()
	if target == nil {
		return
	}
	i.host.router.Disclaim(target)
	endpoint.Close()
	target.Conn.Close()
}

// retire asks the instance to take no new work.
func (i *instance) retire(ctx context.Context, reason pluginv1.RetireRequest_Reason) error {
	answer, err := i.process.Plugin().Retire(ctx, &pluginv1.RetireRequest{Reason: reason})
	if err != nil {
		return i.explain("retire", err)
	}
	if state := answer.GetCheckpoint(); len(state) > 0 {
		i.host.keepCheckpoint(i, state)
	}
	return nil
}

// resume takes a retired instance back into service, with what its successor has left.
func (i *instance) resume(ctx context.Context) error {
	i.host.ownCheckpoint(i)
	ctx, cancel := context.WithTimeout(ctx, retireTimeout)
	defer cancel()
	if _, err := i.process.Plugin().Resume(ctx, &pluginv1.ResumeRequest{Checkpoint: i.host.checkpoint(i.row.ID, i)}); err != nil {
		return i.explain("resume", err)
	}
	return nil
}

// deactivate lets the instance finish and undo what it did. Whatever goes wrong, it is inactive afterwards.
func (i *instance) deactivate(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if t := i.currentTarget(); t != nil {
		t.Stopped()
	}
	answer, err := i.process.Plugin().Deactivate(ctx, &pluginv1.DeactivateRequest{})
	if err != nil {
		err = i.explain("deactivate", err)
	}
	for _, message := range answer.GetErrors() {
		err = errors.Join(err, fmt.Errorf("deactivate: %s", message))
	}
	i.withdraw()
	return err
}

// isGone is true when the process has ended.
func (i *instance) isGone() bool {
	select {
	case <-i.process.Exited():
		return true
	default:
		return false
	}
}

// stop ends the process.
func (i *instance) stop() {
	i.withdraw()
	if i.process != nil {
		i.process.Stop()
	}
	os.RemoveAll(filepath.Join(i.host.dir, fmt.Sprint(i.number)))
}

// deathWait is how long a broken connection may be ahead of the news that the process has died.
const deathWait = 500 * time.Millisecond

// explain makes an error of a life-cycle call readable: what the plugin said, or how its process died.
func (i *instance) explain(what string, err error) error {
	s := status.Convert(err)
	wait := time.Duration(0)
	if s.Code() == codes.Unavailable {
		wait = deathWait
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-i.process.Exited():
		return fmt.Errorf("%s: the process died: %s", what, i.process.Report())
	case <-timer.C:
		return fmt.Errorf("%s: %s", what, s.Message())
	}
}
