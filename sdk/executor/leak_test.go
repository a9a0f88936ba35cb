package executor_test

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-go/dsh/sdk/executor"
)

// TestHundredsOfCommandsLeaveNothing: no descriptor, thread, file or ended child.
func TestHundredsOfCommandsLeaveNothing(t *testing.T) {
	tmp := t.TempDir()
	f := startIn(t, tmp, executor.Options{})
	f.run(t, "true")
	f.readAll(t, f.task(t, "", "true"), "") // connects to the host
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	files, threads := count("/proc/self/fd"), count("/proc/self/task")
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 40 {
				f.run(t, "(sleep .1 &); true")
				f.readAll(t, f.task(t, "", "(setsid sleep .1 >/dev/null &); true"), "")
			}
		})
	}
	callers.Wait()
	eventually(t, "all children gone", func() bool { return len(children(t)) == 1 }) // the guard
	eventually(t, "all descriptors closed", func() bool { return count("/proc/self/fd") <= files })
	if now := count("/proc/self/task"); now > threads+10 {
		t.Errorf("%d threads, before %d", now, threads)
	}
	if left := count(tmp); left > 0 {
		t.Errorf("%d temporary files", left)
	}
}

// children are the children of this process, ended ones included.
func children(t *testing.T) (pids []string) {
	stats, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range stats {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if _, fields, ok := strings.Cut(string(stat), ") "); ok && strings.Fields(fields)[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, entry.Name())
		}
	}
	return pids
}
