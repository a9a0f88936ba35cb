package bashsandbox_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestBadConfigFailsTheActivation(t *testing.T) {
	for want, config := range map[string]map[string]any{
		`mode "lax": it must be "read-only", "workspace-write" or "full"`: {"mode": "lax"},
		`namespaces "maybe": it must be "required" or "off"`:              {"namespaces": "maybe"},
		`without namespaces commands cannot be kept from the network`:     {"namespaces": "off"},
		`denyRead: relative: it must be an absolute path`:                 {"denyRead": []string{"relative"}},
		`allowWrite: / is everything`:                                     {"allowWrite": []string{"/"}},
		`which is denied as a whole`:                                      {"allowRead": []string{"~/.ssh/known_hosts"}},
		`must be an absolute path`:                                        {"cwd": "relative"},
		`nonsense`:                                                        {"nonsense": 1},
	} {
		_, err := plugintest.Activate(t, bashsandbox.Plugin(), options(config))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// activateWhere activates a sandbox in a process of its own on a system that lacks something, and returns the error.
func activateWhere(t *testing.T, config string, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Env = append(os.Environ(), append(cmd.Env, envActivate+"="+config, "TMPDIR="+t.TempDir())...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestASystemWithoutNamespacesFailsTheActivation(t *testing.T) {
	without := func() *exec.Cmd {
		return exec.Command("unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces && exec "+os.Args[0])
	}
	for config, want := range map[string][]string{
		`{}`:                {"this system refuses user, mount and network namespaces", "sysctl user.max_user_namespaces=10000", "set namespaces: off and network: true"},
		`{"network": true}`: {"this system refuses user and mount namespaces", "set namespaces: off and network: true"},
		`{"mode": "full"}`:  {"this system refuses user, mount and network namespaces", "set network: true"},
	} {
		got := activateWhere(t, config, without())
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got %s, want %q", config, got, part)
			}
		}
	}
	for _, config := range []string{`{"namespaces": "off", "network": true}`, `{"mode": "full", "network": true}`} {
		if got := activateWhere(t, config, without()); got != "<nil>\n" {
			t.Errorf("%s: got %s", config, got)
		}
	}
}

func TestASystemWithoutLandlockFailsTheActivation(t *testing.T) {
	without := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{"TEST_SANDBOX_NO_LANDLOCK=1"}
		return cmd
	}
	for _, config := range []string{`{}`, `{"mode": "read-only"}`, `{"namespaces": "off", "network": true}`} {
		got := activateWhere(t, config, without())
		if !strings.Contains(got, "this system has no Landlock (function not implemented): files cannot be confined") || !strings.Contains(got, "mode: full") {
			t.Errorf("%s: got %s", config, got)
		}
	}
	if got := activateWhere(t, `{"mode": "full"}`, without()); got != "<nil>\n" {
		t.Errorf("full: got %s", got)
	}
}

// forbidLandlock makes this process one on a kernel without Landlock, if what is not empty.
func forbidLandlock(what string) {
	if what == "" {
		return
	}
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
		panic(errno)
	}
}

// reachSocket tells whether a socket can be connected to.
func reachSocket(path string) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println(err)
		return
	}
	conn.Close()
	fmt.Println("reached")
}
