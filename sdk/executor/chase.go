package executor

import (
	"syscall"
	"time"
)

const (
	firstPoll = 2 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
	// killLimit is how long SIGKILL is repeated: what the kernel does not end by then sits in a system call that cannot be
	// interrupted, and its result must not wait for that.
	killLimit = 5 * time.Second
)

// family tells which processes a chase is for.
type family interface {
	// groups are process groups whose leaders are not reaped: their numbers cannot be another's.
	groups() []int
	// members are those of the processes that belong to the family and are alive.
	members([]proc) []proc
}

// chase ends a family: SIGTERM, after the grace period SIGKILL, until nothing is left. It goes on at once when ended is closed.
// It returns how many could not be killed.
func (e *engine) chase(f family, ended <-chan struct{}) int {
	began := time.Now()
	told := map[identity]bool{} // who got the SIGTERM
	for poll := firstPoll; ; poll = min(poll*3/2, lastPoll) {
		left := f.members(e.scans.fresh())
		if len(left) == 0 {
			return 0
		}
		limit, elapsed := e.grace(), time.Since(began)
		switch {
		case elapsed < limit:
			terminate(f, left, told)
		case elapsed < limit+killLimit:
			kill(f, left)
		default:
			return len(left)
		}
		wait := time.NewTimer(min(poll, max(limit-elapsed, firstPoll)))
		select {
		case <-wait.C:
		case <-ended:
			ended = nil
		}
		wait.Stop()
	}
}

// terminate sends SIGTERM, to each process once: to whole groups in one call the first time, as no member can slip through that.
func terminate(f family, left []proc, told map[identity]bool) {
	if len(told) == 0 {
		inGroup := map[int]bool{}
		for _, group := range f.groups() {
			inGroup[group] = true
		}
		signalled := map[int]bool{}
		for _, p := range left {
			if !inGroup[p.group] {
				continue
			}
			told[p.identity] = true
			if !signalled[p.group] {
				signalled[p.group] = true
				_ = syscall.Kill(-p.group, syscall.SIGTERM)
			}
		}
	}
	for _, p := range left {
		if !told[p.identity] {
			told[p.identity] = true
			p.signal(syscall.SIGTERM)
		}
	}
}

// kill sends SIGKILL to what is left.
func kill(f family, left []proc) {
	signalled := map[int]bool{} // the groups whose numbers are theirs for certain, and whether they have got it
	for _, group := range f.groups() {
		signalled[group] = false
	}
	for _, p := range left {
		done, held := signalled[p.group]
		switch {
		case !held:
			p.signal(syscall.SIGKILL)
		case !done:
			signalled[p.group] = true
			_ = syscall.Kill(-p.group, syscall.SIGKILL)
		}
	}
}

// identity is a process for good: its number may be used again, but not with the same start time.
type identity struct {
	pid     int
	started uint64
}

// proc is a process as a scan saw it.
type proc struct {
	identity
	ppid, group, session int
	mark                 string // of the environment; empty when there is none or it cannot be read
}

// seen are processes that were found to belong to a family: they still do when their parents have died and they have moved away.
type seen map[identity]bool

// closure returns the processes that belong, were seen before, or descend from such.
func (s *seen) closure(procs []proc, belongs func(proc) bool) []proc {
	if *s == nil {
		*s = seen{}
	}
	in := map[int]bool{}
	rest, members := procs, []proc(nil)
	for {
		found := false
		var others []proc
		for _, p := range rest {
			if in[p.ppid] || (*s)[p.identity] || belongs(p) {
				in[p.pid], found = true, true
				(*s)[p.identity] = true
				members = append(members, p)
			} else {
				others = append(others, p)
			}
		}
		if !found {
			return members
		}
		rest = others
	}
}

// commandFamily is everything that one command started.
type commandFamily struct {
	group int
	mark  string
	seen  seen
}

func (f *commandFamily) groups() []int { return []int{f.group} }

func (f *commandFamily) members(procs []proc) []proc {
	return f.seen.closure(procs, func(p proc) bool {
		return p.group == f.group || p.session == f.group || p.mark == f.mark
	})
}
