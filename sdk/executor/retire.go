package executor

import (
	"context"
	"slices"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// retire gives the checkpoint over to a successor, and lets go of the tasks that have ended.
func (e *engine) retire(_ context.Context, reason sdk.RetireReason) {
	e.saveCheckpoint()
	e.checkpoint.freeze(true)
	e.launching.RLock()
	defer e.launching.RUnlock()
	if e.closed || reason == pluginv1.RetireRequest_REASON_SHUTDOWN {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retired = true
	var ended []*task
	var running []savedTask
	for _, t := range e.order {
		switch {
		case t.lost != "":
		case t.told:
			ended = append(ended, t)
		default:
			saved := t.saved()
			saved.task = t.describe()
			saved.task.Status = &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_RUNNING} // whoever is told takes it for one that may be lost
			running = append(running, saved)
		}
	}
	for _, t := range e.elsewhere {
		running = append(running, t)
	}
	e.work.Go(func() {
		for _, t := range running {
			e.mention(t)
		}
		for _, t := range ended {
			e.letGo(t)
		}
	})
}

// resume takes up again what retire let go: the successor did not come up, or not for long.
func (e *engine) resume(ctx context.Context, _ []byte) error {
	e.mu.Lock()
	e.retired = false
	tasks := slices.Clone(e.order)
	e.mu.Unlock()
	for _, t := range tasks {
		if err := e.takeBack(ctx, t); err != nil {
			return err
		}
	}
	e.checkpoint.freeze(false)
	e.saveCheckpoint()
	return nil
}
