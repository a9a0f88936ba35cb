// Package tools is the registry of tools and the pipeline that executes their calls: the seam "tools".
package tools

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Registry knows the tools of all active providers. Its methods may be called from any goroutine; mu guards the providers.
type Registry struct {
	toolsv1.UnimplementedToolsServer
	log     hclog.Logger
	order   func(row string) int
	changed func() // told when the answer to List is another one
	settled <-chan struct{}

	limit time.Duration

	mu        sync.RWMutex
	providers []*provider // in the order of their rows
	hooks     []hook      // likewise
}

type provider struct {
	row    string
	client toolsv1.ToolProviderClient
	tools  []*toolsv1.Tool
}

// New returns an empty registry. order gives the place of a row in the configuration. Calls wait until settled is closed: the first
// prompt must not find half of the tools. A call that runs longer than limit is ended. changed is called whenever the list of tools, or
// of modes, has become another one.
func New(log hclog.Logger, order func(row string) int, settled <-chan struct{}, limit time.Duration, changed func()) *Registry {
	return &Registry{log: log, order: order, settled: settled, limit: limit, changed: changed}
}

// SetLimit changes the limit of the calls to come.
func (r *Registry) SetLimit(limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
}

// Add asks a provider for its tools and registers them, in place of what the row had before. A tool whose name is taken is left out,
// and says so.
func (r *Registry) Add(ctx context.Context, row string, conn grpc.ClientConnInterface) error {
	p := &provider{row: row, client: toolsv1.NewToolProviderClient(conn)}
	list, err := p.client.List(ctx, &toolsv1.ListRequest{})
	if err != nil {
		return err
	}
	defer r.change()()
	r.put(p, list)
	return nil
}

// Refresh asks a row that serves for its tools and modes again: it has said that they have changed.
func (r *Registry) Refresh(ctx context.Context, row string) error {
	r.mu.RLock()
	i := slices.IndexFunc(r.providers, func(p *provider) bool { return p.row == row })
	if i < 0 {
		r.mu.RUnlock()
		return r.LearnModes(ctx, row)
	}
	old := r.providers[i]
	r.mu.RUnlock()
	list, err := old.client.List(ctx, &toolsv1.ListRequest{})
	if err != nil {
		return err
	}
	done := r.change()
	if slices.Contains(r.providers, old) { // else there is a newer list
		r.put(&provider{row: row, client: old.client}, list)
	}
	done()
	return r.LearnModes(ctx, row)
}

// put registers a provider with its tools, in place of what its row had. mu is held.
func (r *Registry) put(p *provider, list *toolsv1.ListResponse) {
	r.remove(p.row)
	for _, tool := range list.GetTools() {
		if owner := r.find(tool.GetName()); owner != nil {
			r.log.Error(`tool "`+tool.GetName()+`" is already registered`, "row", p.row, "by", owner.row)
			continue
		}
		p.tools = append(p.tools, tool)
	}
	r.providers = append(r.providers, p)
	slices.SortStableFunc(r.providers, func(a, b *provider) int { return r.order(a.row) - r.order(b.row) })
}

// Remove forgets a row's tools. Calls in flight go on.
func (r *Registry) Remove(row string) {
	defer r.change()()
	r.remove(row)
}

// change locks mu for a change of the providers or hooks; what it returns unlocks it and tells whether List answers something else now.
func (r *Registry) change() func() {
	r.mu.Lock()
	before := r.list()
	return func() {
		isSame := proto.Equal(before, r.list())
		r.mu.Unlock()
		if !isSame {
			r.changed()
		}
	}
}

// all are the tools of all providers. mu is held.
func (r *Registry) all() []*toolsv1.Tool {
	var tools []*toolsv1.Tool
	for _, p := range r.providers {
		tools = append(tools, p.tools...)
	}
	return tools
}

// list is the answer to List. mu is held.
func (r *Registry) list() *toolsv1.ListResponse {
	return &toolsv1.ListResponse{Tools: r.all(), Modes: r.modes()}
}

// remove is Remove with mu held.
func (r *Registry) remove(row string) {
	r.providers = slices.DeleteFunc(slices.Clone(r.providers), func(p *provider) bool { return p.row == row })
}

// find returns the provider of a tool. mu is held.
func (r *Registry) find(tool string) *provider {
	for _, p := range r.providers {
		for _, t := range p.tools {
			if t.GetName() == tool {
				return p
			}
		}
	}
	return nil
}

func (r *Registry) wait(ctx context.Context) error {
	select {
	case <-r.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// List implements toolsv1.ToolsServer.
func (r *Registry) List(ctx context.Context, _ *toolsv1.ListRequest) (*toolsv1.ListResponse, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.list(), nil
}
