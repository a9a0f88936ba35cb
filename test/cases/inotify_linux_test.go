package cases

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// What cannot be watched is looked at; what is to be done about it is said, in the words of who can do it.
func TestWithoutInotifyChangesAreStillSeen(t *testing.T) {
	const limited = "echo 2 >/proc/sys/user/max_inotify_watches && "
	if out, err := exec.Command("unshare", "-Ur", "sh", "-c", limited+"true").CombinedOutput(); err != nil {
		t.Skipf("a user namespace with limits of its own is refused here: %v, %s", err, out)
	}
	h := newHome(t, configuration{})
	// Two includes in directories of their own, and the file's: one more than can be watched.
	text, err := os.ReadFile(h.file)
	if err != nil {
		t.Fatal(err)
	}
	var includes []string
	for _, dir := range []string{h.work(), h.work()} {
		include := dir + "/part.yaml"
		includes = append(includes, include)
		if err := os.WriteFile(include, []byte("plugins: []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = append([]byte("include: ["+strings.Join(includes, ", ")+"]\n"), text...)
	if err := os.WriteFile(h.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	h.line = []string{"unshare", "-Ur", "sh", "-c", limited + `exec "$@"`, "sh", program, "run", "--dev", "-c", h.file}
	e := h.start()
	session := e.session(h.work())
	eventually(t, "the log names the limit and the path", func() bool {
		_, complaint, found := strings.Cut(e.log.String(), "cannot watch "+h.dir)
		return found && strings.Contains(complaint, "the limit of inotify watches, user.max_inotify_watches = 2, is reached")
	})
	for i, include := range includes { // whichever of them is not watched
		row := "  - {id: more" + string(rune('1'+i)) + ", plugin: llm-shell, disabled: true}\n"
		if err := os.WriteFile(include, []byte("plugins:\n"+row), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the change of "+include+" is seen", func() bool {
			return strings.Count(e.log.String(), "configuration loaded") == i+1
		})
	}
	expect(t, e.prompt(session, run("echo ok")), "ok\n")
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}
