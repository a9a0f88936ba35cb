package process

import (
	"os/exec"
	"strconv"
	"strings"
)

// RSS is the memory of a process that is resident, in bytes; 0: not known. Process 0 is none.
func RSS(pid int) int64 {
	if pid == 0 {
		return 0
	}
	out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
