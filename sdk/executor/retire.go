package executor

import (
	"context"

	"github.com/dsh-go/dsh/sdk"
)

// retire gives the checkpoint over to a successor and lets go of the finished tasks, one by one as they are read.
func (e *engine) retire(context.Context, sdk.RetireReason) {
	e.saveCheckpoint()
	e.checkpoint.freeze(true)
	e.launching.RLock()
	defer e.launching.RUnlock()
	if e.closed {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retired = true
	for _, t := range e.order {
		if t.told && t.lost == "" {
			e.work.Go(func() { e.linger(t) })
		}
	}
}

// resume takes up again what retire let go: the successor did not come up.
func (e *engine) resume(context.Context) error {
	e.mu.Lock()
	e.retired = false
	e.mu.Unlock()
	e.checkpoint.freeze(false)
	e.saveCheckpoint()
	return nil
}
