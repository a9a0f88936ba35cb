package executor

import (
	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of sys/proc.h

// scanProcesses returns all processes but those that have ended. Environments of others cannot be read here: a mark is never seen.
func scanProcesses() []proc {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	procs := make([]proc, 0, len(infos))
	for _, info := range infos {
		if info.Proc.P_stat == zombie {
			continue
		}
		pid := int(info.Proc.P_pid)
		procs = append(procs, proc{
			identity: identity{pid: pid, started: uint64(info.Proc.P_starttime.Sec)*1e6 + uint64(info.Proc.P_starttime.Usec)},
			ppid:     int(info.Eproc.Ppid), group: int(info.Eproc.Pgid), session: sessionOf(pid),
		})
	}
	return procs
}

func (p proc) signal(sig unix.Signal) { _ = unix.Kill(p.pid, sig) }

// childPIDs is of no use here: orphans go to launchd.
func childPIDs() []int { return nil }
