package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

// timing is how long a Watcher waits for what.
type timing struct {
	quiet   time.Duration // after the last event of a burst
	longest time.Duration // after its first
	empty   time.Duration // for a file that was emptied or removed: most likely it is being saved
	poll    time.Duration // between looks while something cannot be watched
	idle    time.Duration // between looks while all is watched: for file systems that tell of nothing, and for what moved as a whole
	lead    time.Duration // that a new program has before its files are listed, which would slow its start
}

var defaultTiming = timing{
	quiet: 100 * time.Millisecond, longest: time.Second, empty: 300 * time.Millisecond,
	poll: 500 * time.Millisecond, idle: 3 * time.Second, lead: 500 * time.Millisecond,
}

// pollShare is the part of the time that looks without a reason may take: one in so many.
const pollShare = 20

// Watcher tells when the content of files changes. It watches directories, not files: those of the files, of every symbolic link on
// the way to them, and all of a tree. What cannot be watched it looks at twice a second, and says so once.
//
// One goroutine, run, owns what is known; another, pump, sorts events out. They share index and gone, under mu.
type Watcher struct {
	log    hclog.Logger
	timing timing

	changes chan []string
	sets    chan setRequest
	wake    chan struct{} // capacity 1: something that matters happened
	ctx     context.Context
	close   context.CancelFunc
	work    sync.WaitGroup

	mu    sync.Mutex
	index map[string]*interest // what matters in the directories that are watched
	gone  map[string]bool      // the directories among them that were removed, moved or replaced

	// owned by run
	notifier  *fsnotify.Watcher // nil: there is none
	add       func(dir string) error
	set       Set
	watched   map[string]identity
	unwatched []string
	limit     error // why they are
	told      bool
	reported  map[string]state // what the receiver of changes knows
	seen      map[string]state // what the last look found
}

type setRequest struct {
	set   Set
	since time.Time
	done  chan struct{}
}

// NewWatcher starts a Watcher of nothing. Close ends it.
func NewWatcher(log hclog.Logger) *Watcher { return newWatcher(log, defaultTiming, nil) }

// newWatcher has add in place of the file system's notifier, if it is not nil.
func newWatcher(log hclog.Logger, timing timing, add func(dir string) error) *Watcher {
	w := &Watcher{
		log: log, timing: timing, add: add,
		changes: make(chan []string), sets: make(chan setRequest), wake: make(chan struct{}, 1),
		watched: map[string]identity{}, gone: map[string]bool{},
	}
	w.ctx, w.close = context.WithCancel(context.Background())
	if add == nil {
		w.add = func(string) error { return w.limit }
		if w.notifier, w.limit = fsnotify.NewWatcher(); w.limit == nil {
			w.add = w.notifier.Add
			w.work.Go(w.pump)
		}
	}
	w.work.Go(w.run)
	return w
}

// Close ends the Watcher and waits for its end.
func (w *Watcher) Close() {
	w.close()
	w.work.Wait()
}

// Watch replaces the set of files that are watched. When it returns, every later change will be told, and what was found is what
// changes are compared with. For a file that was in the last set too, that is what was last told; and a file that was not counts as
// changed if it was modified after since, unless since is zero.
func (w *Watcher) Watch(set Set, since time.Time) {
	request := setRequest{set, since, make(chan struct{})}
	select {
	case w.sets <- request:
		<-request.done
	case <-w.ctx.Done():
	}
}

// Changes gets the paths that changed since the last receive, sorted. It is never closed.
func (w *Watcher) Changes() <-chan []string { return w.changes }

func (w *Watcher) run() {
	defer func() {
		if w.notifier != nil {
			_ = w.notifier.Close()
		}
	}()
	settle := newSettle(w.timing.quiet, w.timing.longest)
	poll := time.NewTimer(w.timing.idle)
	defer poll.Stop()
	var pending map[string]state // changes that were not received yet
	patient := false             // a file was found empty or missing, and may be in the middle of a save
	for {
		var changes chan []string
		if len(pending) > 0 {
			changes = w.changes
		}
		select {
		case <-w.ctx.Done():
			settle.done()
			return
		case changes <- slices.Sorted(maps.Keys(pending)):
			for path, is := range pending {
				if w.reported[path] = is; !is.exists {
					delete(w.reported, path)
				}
			}
			pending = nil
		case request := <-w.sets:
			w.replace(request)
			if pending = nil; len(w.different()) > 0 {
				settle.event()
			}
			poll.Reset(w.period(0))
			close(request.done)
		case <-w.wake:
			settle.event()
		case <-poll.C:
			started := time.Now()
			if w.look() {
				settle.event()
			}
			poll.Reset(w.period(time.Since(started)))
		case <-settle.C():
			changed := w.look()
			if changed && len(w.unwatched) > 0 && !settle.overdue() { // no event will tell when it is finished
				settle.event()
				continue
			}
			if !patient && w.emptied() {
				patient = true
				settle.wait(w.timing.empty)
				continue
			}
			patient = false
			settle.done()
			pending = w.different()
		}
	}
}

// period is the time until the next look without a reason, after one that took a while.
func (w *Watcher) period(took time.Duration) time.Duration {
	period := w.timing.idle
	if len(w.unwatched) > 0 {
		period = w.timing.poll
	}
	return max(period, pollShare*took)
}

// replace takes a new set.
func (w *Watcher) replace(request setRequest) {
	before := w.reported
	w.set = request.set
	w.look()
	w.reported = map[string]state{}
	for path, is := range w.seen {
		if _, known := before[path]; !known && (request.since.IsZero() || !is.modified.After(request.since)) {
			w.reported[path] = is
		}
	}
	for path, was := range before {
		if w.set.covers(path) {
			w.reported[path] = was
		}
	}
}

// look finds out what there is now, and tells whether anything differs from the last look.
func (w *Watcher) look() (changed bool) {
	files := w.survey()
	seen := make(map[string]state, len(files))
	for path := range files {
		was := w.seen[path]
		seen[path] = observe(path, was)
		changed = changed || !was.same(seen[path])
	}
	for path, was := range w.seen {
		if !files[path] && was.exists {
			changed = true
		}
	}
	w.seen = seen
	return changed
}

// different is what was found where it is not what was reported.
func (w *Watcher) different() map[string]state {
	different := map[string]state{}
	for path, is := range w.seen {
		if !is.same(w.reported[path]) {
			different[path] = is
		}
	}
	for path, was := range w.reported {
		if _, there := w.seen[path]; !there && was.exists { // it was in a tree
			different[path] = state{}
		}
	}
	return different
}

// emptied tells whether a file that had content has none.
func (w *Watcher) emptied() bool {
	for path, is := range w.different() {
		if is.size == 0 && w.reported[path].size > 0 {
			return true
		}
	}
	return false
}

// survey finds the files of the set and watches the directories that matter. What is created in a directory before it is watched
// makes no event, so it looks again until there was nothing new to watch.
func (w *Watcher) survey() map[string]bool {
	const passes = 20 // someone may be making directories all the time: their events will bring us back
	var s *survey
	for range passes {
		s = look(&w.set)
		w.mu.Lock()
		w.index = s.dirs // before anything in it is watched, or an event might not be known to matter
		gone := w.gone
		w.gone = map[string]bool{}
		w.mu.Unlock()
		if !w.watch(s.dirs, gone) {
			break
		}
	}
	for dir := range w.watched {
		if s.dirs[dir] == nil {
			w.unwatch(dir)
		}
	}
	if len(w.unwatched) > 0 && !w.told {
		w.told = true
		w.log.Warn(w.complaint())
	}
	return s.files
}

// watch watches the directories that are not watched yet, or not any more, and tells whether there were any.
func (w *Watcher) watch(dirs map[string]*interest, gone map[string]bool) (added bool) {
	w.unwatched = nil
	for dir := range dirs {
		info, err := os.Stat(dir) // before it is watched: one that is replaced in between must not be taken for the watched one
		if err != nil || !info.IsDir() {
			w.unwatch(dir)
			continue
		}
		id := identify(info)
		id.size, id.changed = 0, 0
		if was, ok := w.watched[dir]; ok && was == id && !gone[dir] {
			continue
		}
		w.unwatch(dir)
		switch err := w.add(dir); {
		case err == nil:
			w.watched[dir] = id
			added = true
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR): // it went away: the next pass watches what is left
			added = true
		default:
			w.limit = err
			w.unwatched = append(w.unwatched, dir)
		}
	}
	slices.Sort(w.unwatched)
	return added
}

func (w *Watcher) unwatch(dir string) {
	if _, ok := w.watched[dir]; ok {
		delete(w.watched, dir)
		if w.notifier != nil {
			_ = w.notifier.Remove(dir) // an error: the kernel has removed it already
		}
	}
}

// complaint says what cannot be watched, why, and what to do about it.
func (w *Watcher) complaint() string {
	what := w.unwatched[0]
	if more := len(w.unwatched) - 1; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	why := limitReached(w.limit)
	if why == "" {
		why = w.limit.Error()
	}
	return fmt.Sprintf("cannot watch %s, looking at it every %v instead: %s", what, w.timing.poll, why)
}

// pump sorts out the events that matter.
func (w *Watcher) pump() {
	events, errs := w.notifier.Events, w.notifier.Errors
	for events != nil || errs != nil {
		matters := true
		select {
		case event, ok := <-events:
			if !ok {
				events, matters = nil, false
				break
			}
			matters = w.matters(event)
		case _, ok := <-errs: // events were lost
			if !ok {
				errs, matters = nil, false
			}
		}
		if matters {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (w *Watcher) matters(event fsnotify.Event) bool {
	if event.Op == fsnotify.Chmod {
		return false
	}
	path := filepath.Clean(event.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.index[path] != nil { // a directory that is watched: it was removed, moved, or made anew
		w.gone[path] = true
		return true
	}
	i := w.index[filepath.Dir(path)]
	return i != nil && i.in(filepath.Base(path))
}
