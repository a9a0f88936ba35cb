package dev

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Loop keeps a program up to date with its source.
type Loop struct {
	Source Source
	Log    hclog.Logger
	// Built gets what differs from the last program. Of a source that is not Go it is called once at the start and after every change that
	// was built.
	Built func(Result)
	// Failed gets the error of a build when it is not the same as that of the last one. Nothing needs to be done about it: the source
	// is built again when it changes.
	Failed func(*BuildError)

	timing timing
}

// Result is a program that was built.
type Result struct {
	// Program is its path; empty when the source is not Go: then the row's command runs it.
	Program string
	// Changed are the files whose changes led to it; none at the start.
	Changed []string
	// Took is how long the build took.
	Took time.Duration
}

// clockTick is how far a file system's clock may be behind.
const clockTick = 20 * time.Millisecond

// Run builds the source at once and after every change, until the context ends. A change during a build starts it over.
// The error is that of a pattern to watch, and found at once; nil when the context ended.
func (l *Loop) Run(ctx context.Context) error {
	set, err := globs(l.Source)
	if err != nil {
		return err
	}
	if l.timing == (timing{}) {
		l.timing = defaultTiming
	}
	r := &running{Loop: l, watcher: newWatcher(l.Log, l.timing, nil)}
	defer r.watcher.Close()
	if l.Source.isGo() {
		set, _ = goFiles(ctx, l.Source) // what is wrong with it, the build will say
	}
	r.watcher.Watch(set, time.Time{})
	for ctx.Err() == nil {
		if set = r.round(ctx, set); ctx.Err() != nil {
			break
		}
		if r.again {
			continue
		}
		r.wait(ctx)
	}
	return nil
}

// running is the state of a Loop that runs. It belongs to Run's goroutine.
type running struct {
	*Loop
	watcher *Watcher

	again   bool          // the last round was cut short by a change
	built   bool          // Built was called
	program string        // with it
	changed []string      // since the last build that was not cut short
	took    time.Duration // of the last build
	failure string        // what Failed was last called with; empty: the last build was well

	ended    time.Time       // when the last build did; zero: it runs
	repeats  int             // builds in a row that were followed at once by a change, or cut short by one
	suspects []string        // the files that changed each time
	outputs  map[string]bool // files that the build itself writes
}

// wait waits for a change.
func (r *running) wait(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case changed := <-r.watcher.Changes():
			if !r.ownOutput(changed) {
				r.Log.Debug("changed", "files", changed)
				r.changed = changed
				return
			}
		}
	}
}

// round builds once, and finds out which files to watch from then on. A change cuts it short.
func (r *running) round(ctx context.Context, set Set) Set {
	started := time.Now()
	var program string
	var err error
	r.ended = time.Time{}
	r.interruptible(ctx, func(ctx context.Context) { program, err = Build(ctx, r.Source) })
	r.ended = time.Now()
	r.took = r.ended.Sub(started)
	if r.again || ctx.Err() != nil {
		return set
	}
	r.report(program, err)
	if !r.Source.isGo() {
		return set
	}
	var next Set
	var listErr error
	r.interruptible(ctx, func(ctx context.Context) {
		lead := time.NewTimer(r.timing.lead)
		defer lead.Stop()
		select {
		case <-lead.C:
			next, listErr = goFiles(ctx, r.Source)
		case <-ctx.Done():
		}
	})
	if r.again || ctx.Err() != nil {
		return set
	}
	if err != nil || listErr != nil { // what a broken package depends on cannot be seen as a whole
		next = set.and(next)
	}
	r.watcher.Watch(next, started.Add(-clockTick))
	return next
}

// interruptible runs a step of a round until it ends or files change.
func (r *running) interruptible(ctx context.Context, step func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		step(ctx)
	}()
	r.again = false
	for {
		select {
		case <-done:
			return
		case changed := <-r.watcher.Changes():
			if r.ownOutput(changed) {
				continue
			}
			r.Log.Debug("changed while it was built; starting over", "files", changed)
			r.changed = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(r.changed), changed...))))
			r.again = true
			cancel()
			<-done
			return
		}
	}
}

// outputAfter is after how many builds in a row a file that changes with each is taken for something that the build writes.
const outputAfter = 5

// ownOutput tells whether files changed because the build command writes them: it would be cut short, or repeated, for ever. The
// first few times there is no telling it from a person who saves.
func (r *running) ownOutput(changed []string) bool {
	if len(r.Source.Build) == 0 {
		return false
	}
	if !r.ended.IsZero() && time.Since(r.ended) > 2*(r.timing.quiet+r.timing.empty) {
		r.repeats = 0
		return false
	}
	changed = slices.DeleteFunc(changed, func(path string) bool { return r.outputs[path] })
	if r.repeats == 0 {
		r.suspects = changed
	}
	r.suspects = slices.DeleteFunc(slices.Clone(r.suspects), func(path string) bool { return !slices.Contains(changed, path) })
	if len(r.suspects) == 0 {
		r.repeats = 0
		return len(changed) == 0
	}
	if r.repeats++; r.repeats < outputAfter {
		return false
	}
	if r.outputs == nil {
		r.outputs = map[string]bool{}
	}
	for _, path := range r.suspects {
		r.outputs[path] = true
	}
	r.Log.Warn("the build writes files that are watched: their changes around a build are ignored; name only sources in watch:", "files", r.suspects)
	r.repeats = 0
	return len(r.suspects) == len(changed)
}

// report tells the result of a build, if it is news.
func (r *running) report(program string, err error) {
	var failure *BuildError
	switch {
	case errors.As(err, &failure):
		if text := failure.Error(); text != r.failure {
			r.failure = text
			r.Failed(failure)
		}
		return
	case err != nil:
		return
	case r.built && r.Source.isGo() && program == r.program:
		r.Log.Info("built; the program is the same, there is nothing to reload")
	default:
		r.built, r.program = true, program
		r.Built(Result{program, r.changed, r.took})
	}
	r.failure = ""
}
