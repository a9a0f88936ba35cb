package executor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-go/dsh/sdk/executor"
)

// guardOf returns the guard of a process, 0 when there is none.
func guardOf(parent int) int {
	for _, pid := range pidsOf("dsh-guard") {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, fields, ok := bytes.Cut(stat, []byte(") ")); ok && strings.Fields(string(fields))[1] == strconv.Itoa(parent) {
			return pid
		}
	}
	return 0
}

func TestGuardRemovesTheSpillFilesOfAnExecutorThatIsKilled(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "dsh") // short: the process's sockets are below it too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	t.Setenv("TMPDIR", tmp)
	c := startProcess(t)
	c.run(t, "seq 1 50000")
	if files, _ := filepath.Glob(os.Getenv("TMPDIR") + "/dsh-bash-*/*"); len(files) != 1 {
		t.Errorf("spilled: %v", files)
	}
	c.instance.Kill()
	eventually(t, "they are gone", func() bool {
		dirs, err := filepath.Glob(os.Getenv("TMPDIR") + "/dsh-bash-*")
		return err == nil && len(dirs) == 0
	})
}

func TestGuardIsStartedAgain(t *testing.T) {
	sleep := sleeper()
	c := startProcess(t)
	c.task(t, "", "setsid sleep "+sleep+" & wait")
	eventually(t, "the command running", func() bool { return running("sleep", sleep) && guardOf(c.instance.PID()) != 0 })
	first := guardOf(c.instance.PID())
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another guard", func() bool { g := guardOf(c.instance.PID()); return g != 0 && g != first })
	c.instance.Kill()
	eventually(t, "nothing left", func() bool { return !running("sleep", sleep) })
}

func TestGuardHoldsNothingAndIgnoresSignals(t *testing.T) {
	c := startProcess(t)
	var guard int
	eventually(t, "the guard running", func() bool { guard = guardOf(c.instance.PID()); return guard != 0 })
	files, err := os.ReadDir("/proc/" + strconv.Itoa(guard) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		target, _ := os.Readlink("/proc/" + strconv.Itoa(guard) + "/fd/" + file.Name())
		n, _ := strconv.Atoi(file.Name())
		if n < 3 && target != "/dev/null" {
			t.Errorf("descriptor %d is %s", n, target)
		}
	}
	eventually(t, "signals ignored", func() bool {
		status, _ := os.ReadFile("/proc/" + strconv.Itoa(guard) + "/status")
		_, rest, ok := strings.Cut(string(status), "SigIgn:")
		if !ok {
			return false
		}
		ignored, _ := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
		return ignored&(1<<(syscall.SIGTERM-1)) != 0 && ignored&(1<<(syscall.SIGINT-1)) != 0
	})
}

func TestDeactivationEndsTheGuard(t *testing.T) {
	for name, stop := range map[string]bool{"as usual": false, "also when it was stopped": true} {
		t.Run(name, func(t *testing.T) {
			f := start(t, executor.Options{})
			var guard int
			eventually(t, "the guard running", func() bool { guard = guardOf(os.Getpid()); return guard != 0 })
			if stop {
				if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			f.instance.Stop()
			if syscall.Kill(guard, 0) == nil {
				t.Error("it is still there")
			}
		})
	}
}
