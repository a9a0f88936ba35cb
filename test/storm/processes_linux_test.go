package storm

import (
	"bytes"
	"fmt"
	"os"
)

type process struct {
	pid  int
	line []byte
}

// processes are all that are dsh, or have its environment: what it runs.
func (s *storm) processes() (found []process) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil || pid == os.Getpid() {
			continue
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if exe == s.program || bytes.Contains(environ, []byte("XDG_RUNTIME_DIR="+s.runtime)) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			found = append(found, process{pid, line})
		}
	}
	return found
}
