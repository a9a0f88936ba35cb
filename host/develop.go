package host

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/dev"
)

// source is what a row's program is built of.
func source(r config.Row) dev.Source {
	if r.Source != "" {
		return dev.Source{Dir: r.Source}
	}
	dir, err := filepath.Abs(filepath.Dir(r.Where.File))
	if err != nil {
		dir = filepath.Dir(r.Where.File) // there is no working directory; the build will say so
	}
	return dev.Source{Dir: dir, Watch: r.Watch, Build: r.Build}
}

// developing is the loop that keeps a row's program up to date with its source.
type developing struct {
	source dev.Source
	stop   context.CancelFunc
}

// develop starts a loop for each row that has a source, and ends those of rows that have none any more. (On the host's goroutine.)
func (h *Host) develop() {
	if !h.options.Dev || h.stopping {
		return
	}
	wanted := map[string]dev.Source{}
	for _, r := range h.rows {
		if r.phase != disabled && (r.Source != "" || len(r.Watch) > 0) {
			wanted[r.ID] = source(r.Row)
		}
	}
	for id, d := range h.loops {
		if s, ok := wanted[id]; !ok || !sameSource(s, d.source) {
			d.stop()
			delete(h.loops, id)
		}
	}
	for id, s := range wanted {
		if h.loops[id] == nil {
			h.loops[id] = h.startLoop(id, s)
		}
	}
}

func sameSource(a, b dev.Source) bool {
	return a.Dir == b.Dir && slices.Equal(a.Watch, b.Watch) && slices.Equal(a.Build, b.Build)
}

func (h *Host) startLoop(id string, s dev.Source) *developing {
	ctx, cancel := context.WithCancel(h.starts)
	first := true // what is built first is what runs: the row was started with it
	loop := &dev.Loop{
		Source: s, Log: h.log.Named(id),
		Built: func(result dev.Result) {
			repeated := first && result.Program == ""
			first = false
			if !repeated {
				h.post(func() { h.rebuilt(id, result) })
			}
		},
		Failed: func(err *dev.BuildError) {
			h.post(func() {
				if r := h.find(id); r != nil && (r.phase != failed || r.err == nil || r.err.Error() != err.Error()) {
					h.log.Error("build failed, what runs serves on: " + reasonAt(r.Row, err))
				}
			})
		},
	}
	h.work.Go(func() {
		if err := loop.Run(ctx); err != nil {
			h.log.Error("cannot watch the source of a row", "row", id, "error", err)
		}
	})
	return &developing{s, cancel}
}

// rebuilt takes note of a program that was built of a changed source.
func (h *Host) rebuilt(id string, result dev.Result) {
	if r := h.find(id); r != nil && r.phase != disabled {
		r.built, r.change, r.stale = result.Program, result, true
		h.catchUp(r)
	}
}

// catchUp replaces the instance of a row whose program has changed, once it is not on its way any more.
func (h *Host) catchUp(r *row) {
	if !r.stale || r.inTransition() {
		return
	}
	r.stale = false
	if r.built == "" || r.instance == nil || r.instance.program != r.built {
		h.replace(r, r.Row, func(Reload, error) {}) // it logs what comes of it
	}
}

// WatchConfig loads the configuration again whenever one of its files changes, until the host stops. It returns at once.
func (h *Host) WatchConfig() {
	h.work.Go(func() {
		w := dev.NewWatcher(h.log)
		defer w.Close()
		w.Watch(dev.Set{Files: h.configFiles()}, h.started) // what was saved since then has not been read
		for {
			select {
			case <-w.Changes():
				began := time.Now()
				_, err := h.ReloadConfig() // it logs what comes of it
				var notRead *config.Error
				if err == nil || !errors.As(err, &notRead) {
					w.Watch(dev.Set{Files: h.configFiles()}, began)
				}
			case <-h.starts.Done():
				return
			}
		}
	})
}

func (h *Host) configFiles() []string {
	h.reconfiguring.Lock()
	defer h.reconfiguring.Unlock()
	var files []string
	for _, file := range h.config.Files {
		if abs, err := filepath.Abs(file); err == nil {
			files = append(files, abs)
		}
	}
	return files
}
