package executor

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// Process is what is about to be started for a command.
type Process struct {
	// Command is what was asked for. It must not be changed.
	Command *bashv1.Command
	// Path is the program to execute, Argv its arguments with the name first: at the beginning bash and its arguments. A launcher
	// that puts itself before them must execute them in its own place, so that the shell leads its process group.
	Path string
	Argv []string
	// Env is the whole environment. The executor adds its mark to it.
	Env []string
	// Dir is the working directory, absolute.
	Dir string
	// Attr begins as the executor's own: a new session and, on Linux, a parent-death signal. Both must stay.
	Attr *syscall.SysProcAttr
	// Notes are lines for model and people that the result carries.
	Notes []string

	script *os.File // descriptor 3 of the process, when the command is too long for an argument
}

// spawner starts processes, one after the other, from one goroutine that never leaves its thread: a parent-death signal comes when
// the thread that started the process ends. The thread ends with close.
type spawner struct {
	null     *os.File // the stdin of every process
	requests chan func()
	ended    sync.WaitGroup
}

func newSpawner() (*spawner, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	s := &spawner{null: null, requests: make(chan func())}
	s.ended.Go(func() {
		runtime.LockOSThread()
		for start := range s.requests {
			start()
		}
	})
	return s, nil
}

// close ends the thread. Nothing may be started after it.
func (s *spawner) close() {
	close(s.requests)
	s.ended.Wait()
	s.null.Close()
}

// start starts a process and registers it as a child. files are its descriptors from 1 on; pidFD, where there is such a thing,
// refers to it and is -1 otherwise.
func (s *spawner) start(p *Process, files ...uintptr) (pid, pidFD int, err error) {
	done := make(chan struct{})
	s.requests <- func() {
		defer close(done)
		attr := &syscall.ProcAttr{Dir: p.Dir, Env: p.Env, Files: append([]uintptr{s.null.Fd()}, files...), Sys: p.Attr}
		pidFD = -1
		wantPidFD(p.Attr, &pidFD)
		children.forking.Lock()
		defer children.forking.Unlock()
		if pid, _, err = syscall.StartProcess(p.Path, p.Argv, attr); err == nil {
			addChild(pid)
		}
	}
	<-done
	if err != nil {
		return 0, -1, fmt.Errorf("cannot start %s in %s: %w", p.Path, p.Dir, err)
	}
	return pid, pidFD, nil
}

// pipes are the two ends of a pipe: reads of the first are asynchronous, the second is for a child.
func newPipe() (r *os.File, w int, err error) {
	fds, err := openPipe()
	if err != nil {
		return nil, -1, fmt.Errorf("open a pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "output"), fds[1], nil
}
