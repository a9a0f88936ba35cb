package executor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func wantPidFD(attr *syscall.SysProcAttr, pidFD *int) { attr.PidFD = pidFD }

// allowMappings lets a process that [sdk.Hide] has hidden start another in a user namespace: who writes the mappings must own the
// child's files in /proc, and until it executes its program those are as hidden as its parent's. What it returns hides this
// process again. It is in sight for no longer than a start, and not for commands in such namespaces.
func allowMappings(attr *syscall.SysProcAttr) (hideAgain func()) {
	hidden, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || hidden != 0 || attr.UidMappings == nil {
		return func() {}
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	return func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
}

// openPipe opens a pipe whose reading end does not block.
func openPipe() (fds [2]int, err error) {
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return fds, err
	}
	return fds, unix.SetNonblock(fds[0], true)
}

const (
	usualPipe = 64 << 10
	widePipe  = 1 << 20
)

// widen makes a pipe larger that was found full. It costs kernel memory that counts against the user, so only those that need it
// are widened.
func widen(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe) }

// newScript returns a file with the text of a command that is too long for an argument. It has no name.
func newScript(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("command", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "command")
	if _, err := f.WriteString(text); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	_, err = f.Seek(0, 0)
	return f, err
}

// hasEnded tells whether a child has ended, without reaping it.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err != nil || info.Signo != 0
		}
	}
}

// awaitEnd returns when a child has ended, and does not reap it. It takes over pidFD; without one it holds a thread.
func awaitEnd(pid, pidFD int) {
	if pidFD >= 0 && unix.SetNonblock(pidFD, true) == nil {
		f := os.NewFile(uintptr(pidFD), "pidfd")
		defer f.Close()
		if raw, err := f.SyscallConn(); err == nil && raw.Read(func(uintptr) bool { return hasEnded(pid) }) == nil {
			return
		}
	}
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		continue
	}
}

// ownProgram is the program of this process, also when its file has been replaced.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// prepareProcess makes orphans of commands children of this process instead of init's, and keeps descriptors that this process
// itself inherited from commands.
func prepareProcess() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS && err != unix.EINVAL {
		return fmt.Errorf("mark inherited descriptors: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}
