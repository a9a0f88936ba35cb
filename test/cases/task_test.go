package cases

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func kill(id string) call { return call{"bash_kill", encode(map[string]any{"task_id": id})} }

// until prompts for the task's output until it has a text, and returns all of it.
func (e *editor) until(session, id, want string) string {
	e.h.t.Helper()
	all := ""
	eventually(e.h.t, id+" says "+want, func() bool {
		all += e.prompt(session, output(id))[0] + "\n"
		return strings.Contains(all, want)
	})
	return all
}

// context are the messages that plugins have put before the model.
func (e *editor) context(session string) (texts []string) {
	e.h.t.Helper()
	script := e.h.model.add(nil)
	e.await("session/prompt", e.ask(session, script))
	for _, m := range e.h.model.last(script).Messages {
		if strings.HasPrefix(m.Content, "<context ") {
			texts = append(texts, m.Content)
		}
	}
	return texts
}

func TestATaskIsReadToldOfAndOver(t *testing.T) {
	e := newHome(t, configuration{}).start()
	session, other := e.session(e.h.work()), e.session(e.h.work())
	expect(t, e.prompt(session, background("cat; echo rc=$?; exit 3")), "started background task bash-1")
	if all := e.until(session, "bash-1", "[status: completed"); !strings.Contains(all, "rc=0\n") || !strings.Contains(all, "[status: completed, exit code: 3]\n") {
		t.Errorf("got %q", all)
	}
	expect(t, e.prompt(session, kill("bash-1"), output("bash-1"), output("bash-9")),
		"task bash-1 had already finished", "(no new output)\n[status: completed, exit code: 3]", `Error: unknown bash task "bash-9"`)
	expect(t, e.prompt(other, output("bash-1"), kill("bash-1"), background("true")),
		"Error: task bash-1 belongs to another session", "Error: task bash-1 belongs to another session", "started background task bash-2")
	var told []string
	eventually(t, "the owner told", func() bool { told = e.context(session); return len(told) > 0 })
	want := "background bash task bash-1 finished [status: completed, exit code: 3]. Read its output with bash_output."
	if told = e.context(session); len(told) != 1 || !strings.Contains(told[0], want) {
		t.Errorf("told %q, want once %q", told, want)
	}
}

func TestATaskWhoseExecutorIsKilledIsLost(t *testing.T) {
	e := newHome(t, configuration{}).start()
	session, other := e.session(e.h.work()), e.session(e.h.work())
	seconds := fmt.Sprint(50_000_000 + os.Getpid()%1_000_000)
	expect(t, e.prompt(session, background("sleep "+seconds)), "started background task bash-1")
	executor := e.plugin("bash-local")
	if err := syscall.Kill(executor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another executor", func() bool {
		pid, ok := e.find("bash-local")
		return ok && pid != executor
	})
	lost := regexp.MustCompile(`task bash-1 was lost: executor "bash" crashed and was restarted at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: .*signal: killed`)
	if results := e.prompt(session, output("bash-1"), kill("bash-1")); len(results) != 2 || !lost.MatchString(results[0]) || results[0] != results[1] || !strings.HasPrefix(results[0], "Error: task") {
		t.Errorf("got %q", results)
	}
	expect(t, e.prompt(other, output("bash-1")), "Error: task bash-1 belongs to another session")
	var told []string
	eventually(t, "the owner told", func() bool { told = e.context(session); return len(told) > 0 })
	if told = e.context(session); len(told) != 1 || !lost.MatchString(told[0]) {
		t.Errorf("told %q", told)
	}
	expect(t, e.prompt(session, background("true")), "started background task bash-2")
	eventually(t, "the command gone", func() bool { return !commandRuns("sleep\x00" + seconds + "\x00") })
}

// The executor may die after it has been replaced, and be replaced more than once while the task runs.
func TestATaskWhoseReplacedExecutorIsKilledIsLost(t *testing.T) {
	e := newHome(t, configuration{}).start()
	session, other := e.session(e.h.work()), e.session(e.h.work())
	seconds := fmt.Sprint(60_000_000 + os.Getpid()%1_000_000)
	expect(t, e.prompt(session, background("sleep "+seconds), background("echo kept")), "started background task bash-1", "started background task bash-2")
	executor := e.plugin("bash-local")
	e.reload("bash")
	eventually(t, "the finished task at the successor", func() bool {
		return e.prompt(session, output("bash-2"))[0] == "kept\n[status: completed, exit code: 0]"
	})
	e.reload("bash")
	expect(t, e.prompt(session, output("bash-1")), "(no new output)\n[status: running]")
	if err := syscall.Kill(executor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	lost := regexp.MustCompile(`task bash-1 was lost: its executor, which had been replaced, died at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: .*signal: killed`)
	eventually(t, "the loss known", func() bool { return lost.MatchString(e.prompt(session, output("bash-1"))[0]) })
	expect(t, e.prompt(other, output("bash-1")), "Error: task bash-1 belongs to another session")
	var told []string
	eventually(t, "the owner told", func() bool {
		told = slices.DeleteFunc(e.context(session), func(text string) bool { return !strings.Contains(text, "bash-1") })
		return len(told) > 0
	})
	if len(told) != 1 || !lost.MatchString(told[0]) {
		t.Errorf("told %q", told)
	}
	eventually(t, "the command gone", func() bool { return !commandRuns("sleep\x00" + seconds + "\x00") })
}

// commandRuns tells whether a process has this command line.
func commandRuns(line string) bool {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if have, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline"); err == nil && string(have) == line {
			return true
		}
	}
	return false
}

func TestATaskOfAnEarlierHostIsOverAndItsIDNotUsedAgain(t *testing.T) {
	h := newHome(t, configuration{})
	cwd := h.work()
	e := h.start()
	session := e.session(cwd)
	expect(t, e.prompt(session, background("exit 3")), "started background task bash-1")
	e.stop()
	e = h.start()
	e.load(session, cwd)
	expect(t, e.prompt(session, output("bash-1"), background("exit 4"), output("bash-3")),
		"Error: task bash-1 is no longer running here, and its output is not kept any more", "started background task bash-2", `Error: unknown bash task "bash-3"`)
}

// Whatever has ended the task, the session that is loaded by a new host is told that it is over.
func TestATaskThatRanWhenItsHostWentIsOver(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, e *editor){
		"the host stopped": func(*testing.T, *editor) {},
		"the host killed": func(t *testing.T, e *editor) {
			if err := e.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		},
		"the executor killed, then the host stopped": func(t *testing.T, e *editor) {
			executor := e.plugin("bash-local")
			if err := syscall.Kill(executor, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "another executor", func() bool {
				pid, ok := e.find("bash-local")
				return ok && pid != executor
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, configuration{})
			cwd := h.work()
			e := h.start()
			session, seconds := e.session(cwd), odd()
			expect(t, e.prompt(session, background("sleep "+seconds)), "started background task bash-1")
			end(t, e)
			e.stop()
			eventually(t, "the command gone", func() bool { return processesWith(seconds) == 0 })
			e = h.start()
			e.load(session, cwd)
			expect(t, e.prompt(session, output("bash-1"), kill("bash-1"), background("true")),
				"Error: task bash-1 is no longer running here, and its output is not kept any more",
				"Error: task bash-1 is no longer running here, and its output is not kept any more",
				"started background task bash-2")
		})
	}
}

// The fence is where the task is, not where the plugins that ask for it are.
func TestTheFenceHoldsWhenAPluginIsReplaced(t *testing.T) {
	e := newHome(t, configuration{}).start()
	session, other := e.session(e.h.work()), e.session(e.h.work())
	seconds, refused := odd(), "Error: task bash-1 belongs to another session"
	expect(t, e.prompt(session, background("sleep "+seconds)), "started background task bash-1")
	for _, row := range []string{"bash", "tool-bash", "agent", "acp", "bash"} {
		e.reload(row)
		expect(t, e.prompt(other, output("bash-1"), kill("bash-1")), refused, refused)
		expect(t, e.attached(output("bash-1")), refused)
		expect(t, e.prompt(session, output("bash-1")), "(no new output)\n[status: running]")
	}
	expect(t, e.prompt(session, kill("bash-1")), "killed background task bash-1")
	e.until(session, "bash-1", "[status: killed by SIGTERM]")
	expect(t, e.prompt(other, output("bash-1")), refused)
	if processesWith(seconds) > 0 {
		t.Error("the command is left")
	}
}

// attached makes a call from a terminal, on behalf of no session, and returns what it printed.
func (e *editor) attached(c call) []string {
	e.h.t.Helper()
	sockets, err := filepath.Glob(filepath.Join(e.h.dir, "dsh-*", "*", "control"))
	if err != nil || len(sockets) != 1 {
		e.h.t.Fatalf("control sockets %q, %v", sockets, err)
	}
	cmd := exec.Command(program, "call", "--attach", sockets[0], c.tool, c.arguments)
	cmd.Env = e.h.env
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		e.h.t.Fatal(err)
	}
	return []string{strings.TrimSuffix(string(out), "\n")}
}
