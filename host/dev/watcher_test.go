package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// watched is a directory that is watched, and a file in it that a test changes to see that nothing else did.
type watched struct {
	*Watcher
	t        *testing.T
	dir      string
	sentinel string
	turns    int
}

func watch(t *testing.T, dir string, set Set) *watched {
	t.Helper()
	w := &watched{newWatcher(hclog.NewNullLogger(), onlyEvents, nil), t, dir, filepath.Join(dir, "sentinel"), 0}
	t.Cleanup(w.Close)
	write(t, w.sentinel, "")
	set.Files = append(set.Files, w.sentinel)
	w.Watch(set, time.Time{})
	return w
}

func (w *watched) expect(names ...string) {
	w.t.Helper()
	var got []string
	for _, path := range receive(w.t, fmt.Sprintf("the change of %q", names), w.Changes()) {
		relative, _ := filepath.Rel(w.dir, path)
		got = append(got, relative)
	}
	if !slices.Equal(got, names) {
		w.t.Fatalf("changed: %q, want %q", got, names)
	}
}

// nothingElse shows that nothing changed so far but what was expected: the next change to be told is one that is made now.
func (w *watched) nothingElse() {
	w.t.Helper()
	w.turns++
	write(w.t, w.sentinel, strings.Repeat("x", w.turns))
	w.expect("sentinel")
}

func TestOneReportPerChangeOfContent(t *testing.T) {
	for _, c := range []struct {
		name    string
		script  string // in a directory where c holds "old"
		changes bool
	}{
		{"written", `echo new >c`, true},
		{"written with the same size", `echo odd >c`, true},
		{"half-written for a while", `: >c; sleep .02; echo a >>c; sleep .02; echo b >>c`, true},
		{"empty for longer than a burst", `: >c; sleep .4; echo new >c`, true},
		{"a burst of saves", `for i in 1 2 3 4 5 6 7 8 9; do echo $i >c; done`, true},
		{"saved by rename", `echo new >.c.tmp; mv .c.tmp c`, true},
		{"saved by rename, with a backup", `mv c c~; echo new >c`, true},
		{"saved by rename, the time kept", `echo odd >.c.tmp; touch -r c .c.tmp; mv .c.tmp c`, true},
		{"removed", `rm c`, true},
		{"emptied for good", `: >c`, true},
		{"replaced by a link", `echo new >d; ln -sf d c`, true},
		{"turned to CRLF", `printf 'old\r\n' >c`, true},
		{"mode changed", `chmod 600 c`, false},
		{"touched", `touch c`, false},
		{"saved without an edit", `echo old >c`, false},
		{"saved by rename without an edit", `echo old >.c.tmp; mv .c.tmp c`, false},
		{"changed and changed back", `echo new >c; echo old >c`, false},
		{"removed and written again", `rm c; sleep .4; echo old >c`, false},
		{"replaced by a link to the same", `mv c d; ln -s d c`, false},
		{"a neighbour written", `echo new >neighbour; echo new >.c.swp; mkdir new; echo new >new/c`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			write(t, filepath.Join(dir, "c"), "old\n")
			w := watch(t, dir, Set{Files: []string{filepath.Join(dir, "c")}})
			shell(t, dir, c.script)
			if c.changes {
				w.expect("c")
			}
			w.nothingElse()
		})
	}
}

func TestLinksAreFollowed(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  string
		script  string
		changes bool
	}{
		{"the swap of a mounted volume", `mkdir v1 v2; echo 1 >v1/c; echo 2 >v2/c; ln -s v1 ..data; ln -s ..data/c c`, `ln -sfn v2 ..data`, true},
		{"its atomic swap, as a container does it", `mkdir v1 v2; echo 1 >v1/c; echo 2 >v2/c; ln -s v1 ..data; ln -s ..data/c c`,
			`ln -s v2 ..tmp; mv -T ..tmp ..data; rm -r v1`, true},
		{"a swap to the same content", `mkdir v1 v2; echo 1 >v1/c; echo 1 >v2/c; ln -s v1 ..data; ln -s ..data/c c`, `ln -sfn v2 ..data`, false},
		{"the end of a chain written", `mkdir a b; echo 1 >b/c; ln -s ../b/c a/c; ln -s a/c c`, `echo 2 >b/c`, true},
		{"the middle of a chain turned", `mkdir a b; echo 1 >b/c; echo 2 >b/d; ln -s ../b/c a/c; ln -s a/c c`, `ln -sfn ../b/d a/c`, true},
		{"written after a swap", `mkdir v1 v2; echo 1 >v1/c; echo 1 >v2/c; ln -s v1 ..data; ln -s ..data/c c`,
			`ln -sfn v2 ..data; sleep .4; echo 2 >v2/c`, true},
		{"a dangling link gets its target", `ln -s later/c c`, `mkdir later; echo 1 >later/c`, true},
		{"a link to itself", `ln -s c c`, `rm c; echo 1 >c`, true},
		{"the file of a directory made later", `ln -s x/y/z c`, `mkdir -p x/y; sleep .4; echo 1 >x/y/z`, true},
		{"the directory removed and made again", `mkdir d; echo 1 >d/c; ln -s d/c c`, `rm -r d; sleep .4; mkdir d; echo 2 >d/c`, true},
		{"the directory replaced", `mkdir d e; echo 1 >d/c; echo 2 >e/c; ln -s d/c c`, `mv d f; mv e d`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			shell(t, dir, c.before)
			w := watch(t, dir, Set{Files: []string{filepath.Join(dir, "c")}})
			shell(t, dir, c.script)
			if c.changes {
				w.expect("c")
			}
			w.nothingElse()
		})
	}
}

func TestTreesFindWhatIsNew(t *testing.T) {
	for _, c := range []struct {
		name    string
		pattern string
		script  string
		changed []string
	}{
		{"a file", "*.ts", `echo 1 >b.ts; echo 1 >b.js`, []string{"b.ts"}},
		{"a directory that fills fast", "**/*.ts", `mkdir -p a/b/c/d; echo 1 >a/b/c/d/x.ts; echo 1 >a/b/y.ts`, []string{"a/b/c/d/x.ts", "a/b/y.ts"}},
		{"many of them", "**/*.ts", `for i in 1 2 3; do mkdir -p $i/a; for f in 1 2; do echo $f >$i/a/$f.ts; done; done`,
			[]string{"1/a/1.ts", "1/a/2.ts", "2/a/1.ts", "2/a/2.ts", "3/a/1.ts", "3/a/2.ts"}},
		{"a directory that is moved in", "**/*.ts", `mkdir -p .hidden/x/y; echo 1 >.hidden/x/y/a.ts; mv .hidden/x x`, []string{"x/y/a.ts"}},
		{"a file removed", "**/*.ts", `rm old/a.ts`, []string{"old/a.ts"}},
		{"a directory removed", "**/*.ts", `rm -r old`, []string{"old/a.ts"}},
		{"a linked directory", "**/*.ts", `mkdir .src; echo 1 >.src/a.ts; ln -s .src new`, []string{"new/a.ts"}},
		{"a farm of links", "**/*.ts", `mkdir -p .store/1 farm; echo 1 >.store/1/a; ln -s ../.store/1/a farm/a.ts`, []string{"farm/a.ts"}},
		{"a link in a circle", "**/*.ts", `mkdir new; ln -s .. new/up; echo 1 >new/a.ts`, []string{"new/a.ts"}},
		{"modules and hidden directories pass by", "**/*.ts", `mkdir node_modules .git; echo 1 >node_modules/a.ts; echo 1 >.git/a.ts; echo 1 >.#a.ts`, nil},
		{"alternatives", "{old,new}/*.{ts,js}", `mkdir new; echo 1 >new/a.js; echo 1 >new/a.py`, []string{"new/a.js"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			write(t, filepath.Join(dir, "old", "a.ts"), "1")
			tree, err := Glob(dir, c.pattern)
			if err != nil {
				t.Fatal(err)
			}
			w := watch(t, dir, Set{Trees: []Tree{tree}})
			shell(t, dir, c.script)
			if c.changed != nil {
				w.expect(c.changed...)
			}
			w.nothingElse()
		})
	}
}

func TestAFileThatIsNewInASetChangedIfItIsNewerThanWhatWasMade(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	w := watch(t, dir, Set{})
	before := time.Now().Add(-time.Hour)
	write(t, filepath.Join(dir, "new"), "1")
	write(t, filepath.Join(dir, "old"), "1")
	if err := os.Chtimes(filepath.Join(dir, "old"), before, before.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.Watch(Set{Files: []string{w.sentinel, filepath.Join(dir, "old"), filepath.Join(dir, "new")}}, before)
	w.expect("new")
	w.nothingElse()
}

func TestAChangeIsNotLostWhenTheSetIsReplaced(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	tree, _ := Glob(dir, "*.ts")
	write(t, filepath.Join(dir, "c"), "1")
	write(t, filepath.Join(dir, "a.ts"), "1")
	set := Set{Files: []string{filepath.Join(dir, "c")}, Trees: []Tree{tree}}
	w := watch(t, dir, set)
	shell(t, dir, `echo 2 >c; rm a.ts`)
	set.Files = append(set.Files, w.sentinel)
	w.Watch(set, time.Time{})
	w.expect("a.ts", "c")
	w.nothingElse()
}

func TestWhatCannotBeWatchedIsLookedAt(t *testing.T) {
	t.Parallel()
	timing := onlyEvents
	timing.poll = 10 * time.Millisecond
	for _, c := range []struct {
		name string
		err  error
		says string
	}{
		{"too many watches", syscall.ENOSPC, "inotify watches"},
		{"too many instances", fmt.Errorf("couldn't initialize inotify: %w", syscall.EMFILE), "inotify instances"},
		{"something else", errors.New("not today"), "not today"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			path := filepath.Join(dir, "c")
			write(t, path, "old")
			log, logger := newLog()
			var tried atomic.Int32
			w := newWatcher(logger, timing, func(string) error { tried.Add(1); return c.err })
			defer w.Close()
			w.Watch(Set{Files: []string{path}}, time.Time{})
			log.waitFor(t, c.says)
			for range 3 {
				shell(t, dir, `: >c; sleep .02; echo $RANDOM.$RANDOM >>c; sleep .02; echo b >>c`)
				if got := receive(t, "the change", w.Changes()); !slices.Equal(got, []string{path}) {
					t.Errorf("changed: %q", got)
				}
			}
			if text := log.String(); strings.Count(text, "[WARN]") != 1 || !strings.Contains(text, "cannot watch "+dir+", looking at it every 10ms instead") {
				t.Errorf("not one warning that names the directory:\n%s", text)
			}
			if tried.Load() < 2 {
				t.Error("it was not tried again")
			}
		})
	}
}

func TestTheMessageNamesTheLimitItsValueAndTheRemedy(t *testing.T) {
	t.Parallel()
	w := &Watcher{timing: defaultTiming, unwatched: []string{"/a", "/b", "/c"}, limit: syscall.ENOSPC}
	got := w.complaint()
	for _, part := range []string{"cannot watch /a and 2 more, looking at it every 500ms instead: ", "max_"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q does not say %q", got, part)
		}
	}
	if strings.Contains(got, "space") {
		t.Errorf("%q speaks of the disk", got)
	}
}

func TestWithoutEventsChangesAreFoundLater(t *testing.T) {
	t.Parallel()
	timing := onlyEvents
	timing.idle = 10 * time.Millisecond
	path := filepath.Join(tempDir(t), "c")
	write(t, path, "old")
	w := newWatcher(hclog.NewNullLogger(), timing, func(string) error { return nil }) // a file system that tells nothing
	defer w.Close()
	w.Watch(Set{Files: []string{path}}, time.Time{})
	write(t, path, "new")
	receive(t, "the change", w.Changes())
}

func TestAClosedWatcherIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := NewWatcher(hclog.NewNullLogger())
	w.Close()
	w.Watch(Set{Files: []string{"/nowhere"}}, time.Time{})
	w.Close()
}
