package peer

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func identify(conn syscall.Conn) (pid, uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Xucred
	controlErr := raw.Control(func(fd uintptr) {
		if cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); err != nil {
			return
		}
		pid, err = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if controlErr != nil {
		return 0, 0, controlErr
	}
	if err != nil {
		return 0, 0, err
	}
	return pid, int(cred.Uid), nil
}
