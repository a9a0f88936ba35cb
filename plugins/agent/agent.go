// Package agent is the agent plugin: it owns sessions and runs their turns, which ask the model and carry out the tool calls that
// it asks for.
//
// A session is an append-only log (see docs/sessions.md); everything else is derived from it. The log is also what callers
// follow: each reads the file at its own pace, so a slow one costs no memory and misses nothing, and a turn waits for a caller
// that is far behind.
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/environ"
	"github.com/dsh-go/dsh/sdk/events"
	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/tool"
)

// config is the row's `config`.
type config struct {
	StateDir     string `json:"stateDir,omitempty" jsonschema:"Absolute directory of the stored sessions. Default: dsh/sessions below the user's state directory."`
	SystemPrompt string `json:"systemPrompt" jsonschema:"What the model is told first. The session's working directory is added to it."`
}

const systemPrompt = `You are a coding agent. You work in the user's directory through the tools you are given.
Find out what is so before you act: read files, run commands, and check what you changed. Keep answers short and to the point.`

// Plugin is the agent plugin.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{
		Name:     "agent",
		Version:  "1.0.0",
		Provides: []sdk.Seam{agents.Seam},
		Injects: []sdk.Injection{
			llm.Seam.Required(), tool.Tools.Required(),
			agents.Seam.Optional(), // to reach the predecessor during a reload
			events.Seam.Optional(), // to hear of other tools
		},
	}, config{SystemPrompt: systemPrompt}, activate)
}

func activate(host *sdk.Context, c config) error {
	dir, err := stateDir(c.StateDir)
	if err != nil {
		return err
	}
	inherited, err := restore(host.Restored())
	if err != nil {
		return err
	}
	a := &agent{
		host: host, config: c, store: store{dir, &index{}},
		model: llm.NewClient(host.Conn()), tools: tool.NewClient(settling{host}),
		sessions: map[string]*slot{}, inherited: inherited,
	}
	a.list.client = a.tools
	events.Watch(host, a.list.changed, api.TopicToolsChanged)
	agentsv1.RegisterAgentsServer(host, &server{agent: a})
	host.Effect("sessions", a.releaseAll)
	host.OnRetire(a.retire)
	host.OnResume(a.resume)
	return nil
}

func stateDir(configured string) (string, error) {
	dir := configured
	if dir == "" {
		state, err := environ.StateHome()
		if err != nil {
			return "", fmt.Errorf("find the directory of the sessions: %w; set config.stateDir", err)
		}
		dir = filepath.Join(state, "dsh", "sessions")
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("config.stateDir must be an absolute path: %s", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of the sessions: %w", err)
	}
	return dir, nil
}

// agent holds the live sessions. A session's lock may be held when mu is taken, never the other way round.
type agent struct {
	host   *sdk.Context
	config config
	store  store
	model  *llm.Client
	tools  *tool.Client
	list   toolList

	retired  atomic.Bool // sessions are released as soon as they are idle
	replaced atomic.Bool // by a successor, which has the sessions with no turn under way here. It is set with the lock held

	mu       sync.Mutex
	sessions map[string]*slot
	// inherited are sessions that are live but not open here, each with the claim of the instance that may still run it. They
	// are opened when they are needed.
	inherited map[string]string
	claim     string // of this instance, when it has a successor and turns under way

	checkpointing sync.Mutex // held while a checkpoint is on its way: the newest must come last
}

// slot is where a session is or comes to be live.
type slot struct {
	ready   chan struct{} // closed when the two below are set
	session *session
	err     error
}

func unknownSession(id string) error { return status.Errorf(codes.NotFound, "unknown session: %s", id) }

// with calls use with a live session, which it opens when another instance of the row had it. While that instance still runs the
// session, the call is made there.
func (a *agent) with(ctx context.Context, id string, use func(*session) error, there func(context.Context, agentsv1.AgentsClient) error) error {
	for {
		s, err := a.lookup(ctx, id)
		var other *elsewhere
		switch {
		case errors.As(err, &other):
			if done, err := a.passOn(ctx, id, other, there); done {
				return err
			}
			continue
		case err != nil:
			return err
		case s == nil:
			continue // who was opening it gave up
		}
		if err := use(s); !errors.Is(err, errReleased) {
			return err
		}
	}
}

// lookup returns a live session; nil when another call was opening it and could not.
func (a *agent) lookup(ctx context.Context, id string) (*session, error) {
	a.mu.Lock()
	at := a.sessions[id]
	_, inherited := a.inherited[id]
	switch {
	case at != nil:
		a.mu.Unlock()
		select {
		case <-at.ready:
			return at.session, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	case forwarded(ctx):
		a.mu.Unlock()
		return nil, status.Errorf(codes.Aborted, "session %s has been released", id)
	case a.replaced.Load():
		a.mu.Unlock()
		return nil, &elsewhere{}
	case !inherited:
		a.mu.Unlock()
		return nil, unknownSession(id)
	}
	at = a.reserve(id)
	a.mu.Unlock()
	a.fill(ctx, at, id, func() (*session, error) { return a.adopt(ctx, id) })
	return at.session, at.err
}

// reserve makes the slot that fill fills. The lock is held, and there is none.
func (a *agent) reserve(id string) *slot {
	at := &slot{ready: make(chan struct{})}
	a.sessions[id] = at
	return at
}

// fill puts what open returns into a reserved slot, and frees the slot when that is an error.
func (a *agent) fill(ctx context.Context, at *slot, id string, open func() (*session, error)) {
	at.session, at.err = open()
	a.mu.Lock()
	if at.err != nil {
		delete(a.sessions, id)
		a.dropClaim()
	}
	if at.err == nil || status.Code(at.err) == codes.NotFound {
		delete(a.inherited, id)
	}
	a.mu.Unlock()
	close(at.ready)
	if at.err != nil {
		return
	}
	if a.retired.Load() { // meanwhile
		at.session.retire()
	}
	a.checkpoint(ctx)
}

// forget frees a session's slot. The session's lock is held.
func (a *agent) forget(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, s.id)
	if !s.closing {
		a.inherited[s.id] = ""
	}
	a.dropClaim()
}

// live returns the sessions that are open.
func (a *agent) live() []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	var live []*session
	for _, at := range a.sessions {
		select {
		case <-at.ready:
			live = append(live, at.session)
		default:
		}
	}
	return live
}

func (a *agent) releaseAll(context.Context) error {
	for _, s := range a.live() {
		s.retire()
	}
	return nil
}
