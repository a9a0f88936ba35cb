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
	// TempDir is the executor's own directory for temporary files. Whoever uses it makes it, with mode 0700; it is removed when the
	// executor ends, also when it is killed.
	TempDir string
	// Finish, if set, is called once when the process has ended, before anyone learns of it, with how it ended and the end of its
	// stderr; with neither when it could not be started. It may add notes to the result. Its error, a status or not, means that the
	// command never ran, and takes the place of the result.
	Finish func(exit *bashv1.Exit, stderr []byte) (notes []string, err error)

	files []*os.File // its descriptors from 3 on
}

// Pass gives the process a further descriptor and returns its number there. The executor closes the file.
func (p *Process) Pass(f *os.File) int {
	p.files = append(p.files, f)
	return 2 + len(p.files)
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
		defer allowMappings(p.Attr)()
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
