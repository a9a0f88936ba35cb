package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

const (
	// checkpointBytes is the most that the host takes. Of more tasks the oldest are left out.
	checkpointBytes = 1 << 20
	// checkpointLimit is how long the host may take for one.
	checkpointLimit = 5 * time.Second
)

// savedTask is what the next instance is told of a task, in case this one dies: it can say then whose the task was and that it is
// lost.
type savedTask struct {
	ID      string `json:"id"`
	Session string `json:"session,omitempty"`
	// Told: its end was published.
	Told bool `json:"told,omitempty"`
	// Lost: it had been lost before, and how.
	Lost string `json:"lost,omitempty"`
	// Elsewhere: it runs in an executor that has been replaced.
	Elsewhere bool `json:"elsewhere,omitempty"`

	// task is how List shows one that runs elsewhere; nil after a crash of the executor that was told of it.
	task *bashv1.Task
}

// describe is the task as List shows it, running elsewhere.
func (t savedTask) describe() *bashv1.Task {
	if t.task != nil {
		return t.task
	}
	return &bashv1.Task{Id: t.ID, SessionId: t.Session, Status: &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_RUNNING}}
}

// checkpoint keeps with the host a line of JSON for each task that runs or has not been read to its end. It has no goroutine:
// whoever wants a change kept writes all there are, or finds that another has done so meanwhile.
type checkpoint struct {
	keep func(context.Context, []byte) error

	mu      sync.Mutex
	lines   []taskLine // oldest first
	changes uint64     // that were made to lines
	frozen  bool       // the row's checkpoint is another instance's now

	writing sync.Mutex
	written uint64 // changes that the host has; owned by writing
}

type taskLine struct {
	id   string
	json []byte
}

// set enters a task, or replaces what was entered.
func (c *checkpoint) set(t savedTask) {
	line, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and a bool always can be
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	entry := taskLine{t.ID, append(line, '\n')}
	if i := c.index(t.ID); i >= 0 {
		c.lines[i] = entry
		return
	}
	c.lines = append(c.lines, entry)
}

// drop strikes out a task. It is no reason to write: what the host has too much does no harm.
func (c *checkpoint) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(id); i >= 0 {
		c.lines = slices.Delete(c.lines, i, i+1)
	}
}

// index looks from the end: it is the youngest that change. mu is held.
func (c *checkpoint) index(id string) int {
	for i, line := range slices.Backward(c.lines) {
		if line.id == id {
			return i
		}
	}
	return -1
}

// freeze makes saves do nothing, or what it made do nothing be saved again.
func (c *checkpoint) freeze(frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = frozen
	c.changes++
}

// save returns when the host has all changes that were made before the call.
func (c *checkpoint) save(ctx context.Context) error {
	c.mu.Lock()
	wanted := c.changes
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.written >= wanted {
		return nil
	}
	c.mu.Lock()
	state, changes, frozen := c.encode(), c.changes, c.frozen
	c.mu.Unlock()
	if frozen {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointLimit)
	defer cancel()
	if err := c.keep(ctx, state); err != nil {
		return err
	}
	c.written = changes
	return nil
}

// encode is the youngest lines that there is room for, in order. mu is held.
func (c *checkpoint) encode() []byte {
	first, size := len(c.lines), 0
	for first > 0 && size+len(c.lines[first-1].json) <= checkpointBytes {
		first--
		size += len(c.lines[first].json)
	}
	state := make([]byte, 0, size)
	for _, line := range c.lines[first:] {
		state = append(state, line.json...)
	}
	return state
}

// decodeCheckpoint returns the tasks of a checkpoint. What another version wrote and this one cannot read is left out.
func decodeCheckpoint(state []byte) (tasks []savedTask) {
	for line := range bytes.Lines(state) {
		var t savedTask
		if json.Unmarshal(line, &t) == nil && t.ID != "" {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
