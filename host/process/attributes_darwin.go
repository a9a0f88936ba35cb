package process

import "syscall"

// childAttributes put the process into a group of its own. There is no parent-death signal: the liveness pipe has to do.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
