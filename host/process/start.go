package process

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// startOnKeptThread starts a command from the one thread that does all starts and lives as long as this process: the kernel sends
// the parent-death signal when the starting *thread* ends.
func startOnKeptThread(cmd *exec.Cmd) error {
	keptThread.once.Do(func() {
		keptThread.starts = make(chan start)
		go func() {
			runtime.LockOSThread()
			for s := range keptThread.starts {
				s.result <- startRetrying(s.cmd)
			}
		}()
	})
	s := start{cmd, make(chan error, 1)}
	keptThread.starts <- s
	return <-s.result
}

var keptThread struct {
	once   sync.Once
	starts chan start
}

type start struct {
	cmd    *exec.Cmd
	result chan error
}

// startRetrying tries again while the program is still open for writing in a process that was forked meanwhile.
func startRetrying(cmd *exec.Cmd) error {
	for attempt := 0; ; attempt++ {
		err := cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) || attempt == 10 {
			return err
		}
		retry := exec.Command(cmd.Path, cmd.Args[1:]...)
		retry.Env, retry.Stdout, retry.Stderr, retry.ExtraFiles, retry.SysProcAttr =
			cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.SysProcAttr
		*cmd = *retry
		runtime.Gosched()
	}
}
