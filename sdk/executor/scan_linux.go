package executor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// scanProcesses returns all processes but kernel threads and those that have ended. Of processes that vanish meanwhile, or that
// are not visible to this user, it says nothing.
func scanProcesses() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	procs := make([]proc, 0, len(names))
	buf := make([]byte, 4096)
	var environ []byte
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, ok := readStat(pid, buf)
		if !ok || p.group == 0 { // the kernel's own
			continue
		}
		environ = readFile("/proc/"+name+"/environ", environ[:0])
		p.mark = markIn(environ)
		procs = append(procs, p)
	}
	return procs
}

// readStat reads a process; ok is false when it has ended.
func readStat(pid int, buf []byte) (p proc, ok bool) {
	text := readFile("/proc/"+strconv.Itoa(pid)+"/stat", buf[:0])
	// The name in brackets may hold brackets and spaces itself.
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return proc{}, false
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return proc{}, false
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(string(fields[i]))
		return n
	}
	started, _ := strconv.ParseUint(string(fields[19]), 10, 64)
	return proc{
		identity: identity{pid: pid, started: started},
		ppid:     number(1), group: number(2), session: number(3),
	}, true
}

// readFile reads a file of /proc, as much as there is, into buf.
func readFile(path string, buf []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	for {
		if cap(buf)-len(buf) < 512 {
			buf = append(buf, make([]byte, 4096)...)[:len(buf)]
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return buf
		}
		buf = buf[:len(buf)+n]
	}
}

var markVariable = []byte(envMark + "=")

func markIn(environ []byte) string {
	for len(environ) > 0 {
		i := bytes.Index(environ, markVariable)
		if i < 0 {
			return ""
		}
		value := environ[i+len(markVariable):]
		if i == 0 || environ[i-1] == 0 {
			value, _, _ = bytes.Cut(value, []byte{0})
			return string(value)
		}
		environ = value
	}
	return ""
}

// signal signals exactly this process, whoever has its number now.
func (p proc) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ENOSYS {
		_ = unix.Kill(p.pid, sig)
		return
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readStat(p.pid, make([]byte, 1024)); ok && now.identity == p.identity {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// childPIDs are the children of this process, the ended ones included.
func childPIDs() []int {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var pids []int
	for _, thread := range threads {
		list, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%s/children", thread.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
