package process

import "syscall"

// childAttributes put the process into a group of its own and kill it when this process dies, however it dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
