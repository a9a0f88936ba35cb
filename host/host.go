package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/host/events"
	"github.com/dsh-go/dsh/host/numbers"
	"github.com/dsh-go/dsh/host/router"
	"github.com/dsh-go/dsh/host/stdio"
	"github.com/dsh-go/dsh/host/tools"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/controlv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/api/stdiov1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Options say what a host runs.
type Options struct {
	Config *config.Config
	// Builtin is the command line that serves a built-in plugin; false: there is none of that name.
	Builtin func(name string) (argv []string, ok bool)
	// Builtins are the names of all built-in plugins, for messages.
	Builtins []string
	// Env is the environment to derive the plugins' from: names of credentials are dropped.
	Env []string
	Log hclog.Logger
	// Dev keeps the programs of rows up to date with their sources.
	Dev bool
	// Load reads the configuration again, for ReloadConfig.
	Load func() (*config.Config, error)
	// Control opens the control socket, on which these logs can be read, and serves the seam "control". Nil: there is none.
	Control *control.Logs
	// Numbers are in the keys of claims. Nil: they begin anew with each host.
	Numbers *numbers.Counters
	// Stdio is served as the seam "stdio". Nil: rows that need it stay pending.
	Stdio *stdio.Server
}

// Host runs one configuration. One goroutine, run, owns the rows; everything slow happens in goroutines of its own and comes back
// as a message.
type Host struct {
	options Options
	log     hclog.Logger
	dir     string // of the sockets: private, short
	unlock  func()
	router  *router.Router
	tools   *tools.Registry
	events  *events.Server
	seams   hostSeams
	started time.Time
	control *router.Endpoint // nil: no control socket

	messages chan func()
	work     sync.WaitGroup  // everything slow
	ctx      context.Context // ends when the host is killed
	kill     context.CancelFunc
	starts   context.Context // ends when the host stops: nothing more is to start
	noStarts context.CancelFunc
	settled  chan struct{}
	deaf     chan struct{} // closed when run takes no more messages
	done     chan struct{}

	// Owned by run.
	rows     []*row
	checking bool // nothing is to be activated
	stopping bool
	killed   bool
	next     int      // number of the next instance
	ending   int      // retirees
	quiet    []func() // to be called once no row is on its way
	loops    map[string]*developing

	mu          sync.Mutex
	checkpoints map[string]checkpoint // by row
	places      map[string]int        // of the rows in the configuration

	reconfiguring sync.Mutex     // held by ReloadConfig
	config        *config.Config // the one that stands, owned by whoever holds reconfiguring
}

// checkpoint is what the instances of a row have left last.
type checkpoint struct {
	plugin     string // that left it: another would not understand it
	generation int
	state      []byte
}

// Start starts all rows and returns at once; Settled tells when every row has come as far as it can. Call Stop in the end.
func Start(o Options) (*Host, error) {
	h, err := newHost(o)
	if err != nil {
		return nil, err
	}
	if err := h.openControl(); err != nil {
		h.unlock()
		return nil, err
	}
	go h.run()
	return h, nil
}

func newHost(o Options) (*Host, error) {
	if o.Numbers == nil {
		o.Numbers = numbers.InMemory()
	}
	dir, unlock, err := makeSocketDir(os.Getenv)
	if err != nil {
		return nil, err
	}
	h := &Host{
		options: o, log: o.Log, dir: dir, unlock: unlock, router: router.New(o.Numbers), events: events.New(o.Log.Named("events"), router.CallerRow),
		seams:    hostSeams{"tools": toolsv1.Tools_ServiceDesc.ServiceName, "events": eventsv1.Events_ServiceDesc.ServiceName},
		messages: make(chan func(), 64), settled: make(chan struct{}), deaf: make(chan struct{}), done: make(chan struct{}),
		checkpoints: map[string]checkpoint{},
	}
	if o.Stdio != nil {
		h.seams["stdio"] = stdiov1.Stdio_ServiceDesc.ServiceName
	}
	if o.Control != nil {
		h.seams["control"] = controlv1.Control_ServiceDesc.ServiceName
	}
	h.ctx, h.kill = context.WithCancel(context.Background())
	h.starts, h.noStarts = context.WithCancel(h.ctx)
	for _, r := range o.Config.Rows {
		h.rows = append(h.rows, &row{Row: r, phase: disabled})
	}
	h.started = time.Now()
	h.loops = map[string]*developing{}
	h.setOrder(o.Config.Rows)
	h.config = o.Config
	h.tools = tools.New(o.Log.Named("tools"), h.place, h.settled, o.Config.ToolTimeout,
		func() { h.events.Announce(api.TopicToolsChanged, "", nil) })
	h.events.Take(api.TopicToolsChanged, h.tools.Refresh)
	return h, nil
}

// Settled is closed when every row has come as far as it can for now.
func (h *Host) Settled() <-chan struct{} { return h.settled }

// Done is closed when the host has stopped and nothing of it is left.
func (h *Host) Done() <-chan struct{} { return h.done }

// Stop deactivates all rows in reverse order and ends their processes. It returns at once; Done tells.
func (h *Host) Stop() { h.post(func() { h.stop() }) }

// Kill ends all processes now. It returns at once; Done tells.
func (h *Host) Kill() {
	h.kill()
	h.post(func() { h.killed = true; h.stop() })
}

// Dial connects to the seams of a running host: those that it serves and those of its plugins, as the caller row "cli".
func (h *Host) Dial() (conn *grpc.ClientConn, closeConn func(), err error) {
	path := filepath.Join(h.dir, "cli")
	endpoint, err := h.router.Listen(path, os.Getpid(), &router.Caller{Row: "cli"}, h.registerSeams)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = api.Dial(path); err != nil {
		endpoint.Close()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); endpoint.Close() }, nil
}

// registerSeams registers the seams that the host itself serves.
func (h *Host) registerSeams(s grpc.ServiceRegistrar) {
	toolsv1.RegisterToolsServer(s, h.tools)
	eventsv1.RegisterEventsServer(s, h.events)
	if h.options.Stdio != nil {
		stdiov1.RegisterStdioServer(s, h.options.Stdio)
	}
	if h.options.Control != nil {
		h.registerControl(s)
	}
}

// keepCheckpoint takes what an instance leaves, unless a later instance of the row has left something.
func (h *Host) keepCheckpoint(i *instance, state []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.generation >= h.checkpoints[i.row.ID].generation {
		h.checkpoints[i.row.ID] = checkpoint{i.manifest.GetName(), i.generation, state}
	}
}

// checkpoint returns what is left in a row for an instance; nil when another plugin left it.
func (h *Host) checkpoint(row string, i *instance) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.checkpoints[row]; c.plugin == i.manifest.GetName() {
		return c.state
	}
	return nil
}

// ownCheckpoint lets an instance that comes back leave checkpoints, although a later one has been there meanwhile.
func (h *Host) ownCheckpoint(i *instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.checkpoints[i.row.ID]
	c.generation = i.generation
	h.checkpoints[i.row.ID] = c
}

// ---- the host's goroutine

// post hands a message to run.
func (h *Host) post(message func()) {
	select {
	case h.messages <- message:
	case <-h.deaf:
	}
}

// do runs something slow elsewhere; then takes its outcome on the host's goroutine.
func (h *Host) do(slow func() error, then func(error)) {
	h.work.Go(func() {
		err := slow()
		h.post(func() { then(err) })
	})
}

func (h *Host) run() {
	for _, r := range h.rows {
		if !r.Disabled {
			h.start(r)
		}
	}
	h.develop()
	for {
		h.step()
		if h.stopping && h.ending == 0 && !slices.ContainsFunc(h.rows, (*row).hasProcess) {
			break
		}
		(<-h.messages)()
	}
	h.kill()
	if !h.isSettled() {
		close(h.settled)
	}
	close(h.deaf)
	h.work.Wait()
	h.closeControl() // last: `dsh stop` waits for it
	h.unlock()
	close(h.done)
}

// step takes the rows as far as they can go now.
func (h *Host) step() {
	defer h.observe()
	if h.killed {
		for _, r := range h.rows {
			if r.instance != nil && r.phase != stopped {
				h.end(r)
			}
			for _, rt := range r.retiring {
				rt.process.Kill()
			}
		}
		return
	}
	for !h.checking || h.stopping {
		d := plan(h.states(), h.seams, h.stopping)
		h.explain(d)
		for _, id := range d.activate {
			h.activate(h.row(id))
		}
		for _, id := range d.deactivate {
			h.deactivate(h.row(id))
		}
		for _, id := range d.stop {
			h.end(h.row(id))
		}
		if len(d.fail) == 0 { // a failure changes what others wait for
			break
		}
	}
	if slices.ContainsFunc(h.rows, (*row).inTransition) {
		return
	}
	if !h.isSettled() {
		close(h.settled)
	}
	quiet := h.quiet
	h.quiet = nil
	for _, f := range quiet {
		f()
	}
}

func (h *Host) isSettled() bool {
	select {
	case <-h.settled:
		return true
	default:
		return false
	}
}

func (h *Host) states() []rowState {
	states := make([]rowState, 0, len(h.rows))
	for _, r := range h.rows {
		states = append(states, rowState{id: r.ID, phase: r.phase, manifest: r.manifest, returning: r.returning})
	}
	return states
}

func (h *Host) row(id string) *row {
	i := slices.IndexFunc(h.rows, func(r *row) bool { return r.ID == id })
	return h.rows[i]
}

// explain notes and logs why rows fail and what they wait for.
func (h *Host) explain(d decision) {
	for id, why := range d.fail {
		h.fail(h.row(id), errors.New(why))
	}
	for _, r := range h.rows {
		if waiting := d.waiting[r.ID]; waiting != r.waiting && r.phase == pending {
			r.waiting = waiting
			h.log.Debug("row is pending", "row", r.ID, "for", waiting)
		}
	}
}

// stop begins the orderly end: all instances hear of it first, so that grace periods are cut everywhere.
func (h *Host) stop() {
	if h.stopping {
		return
	}
	h.stopping = true
	h.noStarts()
	for _, r := range h.rows {
		if r.phase == active {
			i := r.instance
			h.do(func() error {
				ctx, cancel := context.WithTimeout(h.ctx, shutdownTimeout)
				defer cancel()
				return i.retire(ctx, pluginv1.RetireRequest_REASON_SHUTDOWN)
			}, func(err error) {
				if err != nil && !i.isGone() { // deactivation does not wait for this: it may have ended before it answered
					h.log.Warn("retirement was not clean", "row", r.ID, "error", err)
				}
			})
		}
	}
}
