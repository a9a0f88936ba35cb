package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// RSS is the memory of a process that is resident, in bytes; 0: not known. Process 0 is none.
func RSS(pid int) int64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("\nVmRSS:"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" kB"))
	kib, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
