package cases

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ordinary makes the home one of an ordinary user, also when root runs the tests: root could read everything.
func (h *home) ordinary() {
	h.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const uid = 54321
	h.attr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	if err := filepath.WalkDir(h.dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(path, uid, uid)
		}
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
}

// search prints the places where a command may find the credential: its environment, and what an ordinary user can read of the
// processes above it and of the plugins.
const search = `needle=sk-this-must""-stay
env | grep -a $needle
p=$$
while [ $p -gt 0 ]; do
	above="$above $p"
	p=$(sed -n 's/^PPid:\t//p' /proc/$p/status)
done
for p in $above; do
	for f in environ cmdline; do
		tr '\0' '\n' 2>/dev/null </proc/$p/$f | grep -aq $needle && echo "/proc/$p/$f: $(tr '\0' ' ' </proc/$p/cmdline)"
	done
	{ : </proc/$p/mem; } 2>/dev/null && [ $p != $$ ] && echo "the memory of $p: $(tr '\0' ' ' </proc/$p/cmdline)"
done
for d in /proc/[0-9]*; do # the plugins, of which one has the credential
	grep -aq serve-""plugin $d/cmdline 2>/dev/null && { : <$d/mem; } 2>/dev/null && echo "the memory of $d: $(tr '\0' ' ' <$d/cmdline)"
done
echo searched $(echo $above | wc -w)`

func TestACredentialOfTheHostReachesNoCommand(t *testing.T) {
	h := newHome(t, configuration{env: []string{"MY_TOKEN=" + credential, "AWS_SECRET_ACCESS_KEY=" + credential, "DSH_SOMETHING=" + credential}})
	cwd := h.work()
	h.ordinary()
	e := h.start()
	session := e.session(cwd)
	results := e.prompt(session, run(search), background(search), run("seq 1 50000; env; exit 1"), run("cat $TMPDIR/dsh-bash-*/* | grep -ac sk-this-must"))
	var above int
	if _, err := fmt.Sscanf(results[0], "searched %d\n", &above); err != nil || above < 4 { // the command, its executor, the host, the test
		t.Errorf("a command found it: %s", results[0])
	}
	if all := e.until(session, "bash-1", "[status: completed"); strings.Contains(all, "/proc/") || strings.Contains(all, "memory") || !strings.Contains(all, "searched ") {
		t.Errorf("a task found it: %s", all)
	}
	expect(t, results[3:], "0\n[exit code: 1]")
	if strings.Contains(strings.Join(results, ""), credential) {
		t.Errorf("it is in a result: %q", results)
	}
	for _, pid := range append(childrenOf(e.cmd.Process.Pid), e.cmd.Process.Pid) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || strings.Contains(string(line), credential) {
			t.Errorf("the command line of %d: %q, %v", pid, line, err)
		}
	}
	e.stop()
	if strings.Contains(e.log.String(), credential) {
		t.Errorf("it is in the log: %s", e.log)
	}
	// What is left: the stored session, the state. The configuration names only the variable.
	if err := filepath.WalkDir(h.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), credential) {
			t.Errorf("it is in %s, %v", path, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A host on a terminal: its commands must not reach it.
func TestACommandCannotAskOnTheTerminal(t *testing.T) {
	h := newHome(t, configuration{})
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer side.Close()
	for command, want := range map[string]string{
		"{ : >/dev/tty; } 2>/dev/null && echo tty || echo notty": "notty\n",
		"tty":                    "not a tty\n[exit code: 1]\n",
		"read -p 'Password: ' x": "(no output)\n[exit code: 1]\n",
	} {
		cmd := exec.Command(program, "call", "-c", h.file, "bash", run(command).arguments)
		cmd.Env, cmd.Dir = h.env, h.dir
		cmd.Stdin, cmd.SysProcAttr = side, &syscall.SysProcAttr{Setsid: true, Setctty: true}
		out, err := cmd.Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: got %q, %v; want %q", command, out, err, want)
		}
	}
}
