package agent

import (
	"context"
	"sync"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

// toolList is the list of the tools and modes as the host has it. It is kept as long as the host tells of changes: each step needs it.
type toolList struct {
	client *tool.Client

	mu       sync.Mutex
	watching bool
	changes  uint64 // heard of
	known    bool   // the rest is up to date
	tools    []*toolsv1.Tool
	modes    []*toolsv1.Mode
}

// changed says that what is kept is out of date, and whether the next change will be heard of.
func (l *toolList) changed(watching bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watching, l.known = watching, false
	l.changes++
}

// get returns the list. It is not to be changed.
func (l *toolList) get(ctx context.Context) ([]*toolsv1.Tool, []*toolsv1.Mode, error) {
	l.mu.Lock()
	if l.known {
		defer l.mu.Unlock()
		return l.tools, l.modes, nil
	}
	changes := l.changes
	l.mu.Unlock()
	tools, modes, err := l.client.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watching && l.changes == changes {
		l.tools, l.modes, l.known = tools, modes, true
	}
	return tools, modes, nil
}
