package executor

import (
	"maps"
	"sync"

	"golang.org/x/sys/unix"
)

// children are facts of the process, whatever engines it has. forking is held while a process is started and while orphans are
// reaped, so that a child is registered before it can be taken for an orphan.
var children struct {
	forking sync.Mutex

	sync.Mutex
	own map[int]bool // what this program started itself and has not reaped
}

func addChild(pid int) {
	children.Lock()
	defer children.Unlock()
	if children.own == nil {
		children.own = map[int]bool{}
	}
	children.own[pid] = true
}

// reapChild takes the status of an own child that has ended.
func reapChild(pid int) unix.WaitStatus {
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	children.Lock()
	delete(children.own, pid)
	children.Unlock()
	return status
}

func ownChildren() map[int]bool {
	children.Lock()
	defer children.Unlock()
	return maps.Clone(children.own)
}

// reapOrphans reaps the ended children that this program did not start: those that commands left behind. A child in the
// program's own session cannot come from a command; it is somebody else's to wait for.
func reapOrphans() {
	children.forking.Lock()
	defer children.forking.Unlock()
	own, session := ownChildren(), sessionOf(0)
	for _, pid := range childPIDs() {
		if !own[pid] && sessionOf(pid) != session {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

func sessionOf(pid int) int {
	session, err := unix.Getsid(pid)
	if err != nil {
		return -1
	}
	return session
}

// groupExists tells whether a process group has members, without signalling it.
func groupExists(group int) bool {
	_, err := unix.Getpriority(unix.PRIO_PGRP, group)
	return err != unix.ESRCH
}
