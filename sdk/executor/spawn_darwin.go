package executor

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func allowMappings(*syscall.SysProcAttr) (hideAgain func()) { return func() {} }

func wantPidFD(*syscall.SysProcAttr, *int) {}

// openPipe opens a pipe whose reading end does not block.
func openPipe() (fds [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(fds[:]); err != nil {
		return fds, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds, unix.SetNonblock(fds[0], true)
}

const usualPipe = 64 << 10

// widen does nothing: the kernel widens pipes itself.
func widen(uintptr) {}

// newScript returns a file with the text of a command that is too long for an argument. It has no name.
func newScript(text string) (*os.File, error) {
	f, err := os.CreateTemp("", "dsh-command")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.WriteString(text); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	_, err = f.Seek(0, 0)
	return f, err
}

// hasEnded tells whether a child has ended, without reaping it.
func hasEnded(pid int) bool {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err != nil || info.Proc.P_stat == zombie
}

// awaitEnd returns when a child has ended, and does not reap it. It holds a thread.
func awaitEnd(pid, _ int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(queue)
	change := []unix.Kevent_t{{
		Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT,
	}}
	events := make([]unix.Kevent_t, 1)
	for !hasEnded(pid) {
		if _, err := unix.Kevent(queue, change, events, nil); err != nil && err != unix.EINTR {
			return // ESRCH: it has ended
		}
	}
}

// ownProgram is the program of this process.
func ownProgram() (string, error) { return os.Executable() }

func prepareProcess() error { return nil }
