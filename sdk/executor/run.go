package executor

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// orphanDelay gathers the ends of many orphans into one look at the children.
	orphanDelay = 100 * time.Millisecond
	// stragglerPeriod is how often groups without a shell are looked at where their ends are not signalled.
	stragglerPeriod = time.Second
)

// run is the executor's goroutine. It returns when the instance is deactivated and every command is dead.
func (e *engine) run(ctx context.Context) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	look := time.NewTimer(stragglerPeriod)
	defer look.Stop()
	soon := false // whether look is set to orphanDelay
	for {
		select {
		case <-ctx.Done():
			e.killAll()
			return nil
		case <-ended:
			if !soon {
				soon = true
				look.Reset(orphanDelay)
			}
		case <-look.C:
			soon = false
			reapOrphans()
			if e.forgetStragglers() > 0 {
				look.Reset(stragglerPeriod)
			}
		}
	}
}

// addStraggler remembers a group whose shell has ended, unless nothing is left of it.
func (e *engine) addStraggler(group int, s slot) {
	if !groupExists(group) {
		e.guard.remove(s)
		return
	}
	e.mu.Lock()
	e.stragglers[group] = s
	e.mu.Unlock()
}

// forgetStragglers forgets the groups that have become empty and returns how many are left.
func (e *engine) forgetStragglers() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for group, s := range e.stragglers {
		if !groupExists(group) {
			delete(e.stragglers, group)
			e.guard.remove(s)
		}
	}
	return len(e.stragglers)
}

// killAll refuses further commands, kills all there are with everything they left behind, and waits for their ends.
func (e *engine) killAll() {
	e.launching.Lock()
	e.closed = true
	e.launching.Unlock()
	e.mu.Lock()
	for c := range e.commands { // in it, they are not reaped
		c.removed.Store(!hasEnded(c.pid))
	}
	e.mu.Unlock()
	close(e.closing)
	if left := e.chase(&instanceFamily{engine: e}, nil); left > 0 {
		e.Log().Error("some processes cannot be killed", "count", left)
	}
	close(e.dead)
	e.mu.Lock()
	for o := range e.outputs {
		o.pipe.Close() // whoever holds the other end could not be found or killed
	}
	e.mu.Unlock()
	e.work.Wait()
	reapOrphans()
	e.forgetStragglers()
}

// instanceFamily is everything that any command of the engine started.
type instanceFamily struct {
	engine *engine
	seen   seen
}

func (f *instanceFamily) groups() []int {
	f.engine.mu.Lock()
	defer f.engine.mu.Unlock()
	var groups []int
	for c := range f.engine.commands {
		groups = append(groups, c.pid)
	}
	return groups
}

func (f *instanceFamily) members(procs []proc) []proc {
	e := f.engine
	e.mu.Lock()
	groups := make(map[int]bool, len(e.commands)+len(e.stragglers))
	for c := range e.commands {
		groups[c.pid] = true
	}
	for group := range e.stragglers {
		groups[group] = true
	}
	e.mu.Unlock()
	self, own := os.Getpid(), ownChildren()
	session := sessionOf(self)
	return f.seen.closure(procs, func(p proc) bool {
		adopted := p.ppid == self && p.mark == "" && p.session != session && !own[p.pid]
		return groups[p.group] || groups[p.session] || adopted || strings.HasPrefix(p.mark, e.mark+"-")
	})
}
