package executortest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

const (
	stillRunning = bashv1.TaskStatus_STATE_RUNNING
	completed    = bashv1.TaskStatus_STATE_COMPLETED
	wasKilled    = bashv1.TaskStatus_STATE_KILLED
)

var taskRules = []rule{
	{"start answers at once, and no timeout applies", startsAtOnce},
	{"reading gives what came since the previous read", increments},
	{"ids are shared by all sessions and never reused", taskIDs},
	{"lost bytes: the retained tail and where the whole is", dropped},
	{"an incomplete character is held back until the rest or the end comes", heldBack},
	{"killed: asked for and not closed yet, then by its signal, then already over", killedTask},
	{"death by any signal is killed", anySignal},
	{"stdin of a task is /dev/null", taskStdin},
	{"a start that fails to spawn still gives a task", notSpawned},
	{"list is oldest first", list},
}

func startsAtOnce(t *testing.T, e Executor) {
	i := e.start(t, config{"timeoutMs": 50, "maxTimeoutMs": 50})
	began := time.Now()
	id := i.task(t, "s-1", "sleep .5; echo over")
	if took := time.Since(began); id != "bash-1" || took > 400*time.Millisecond {
		t.Errorf("got %s after %v", id, took)
	}
	if stdout, last := i.read(t, id, "s-1"); stdout != "over\n" || last.GetStatus().GetState() != completed {
		t.Errorf("got %q, %v", stdout, last)
	}
}

func increments(t *testing.T, e Executor) {
	i := e.start(t, nil)
	id := i.task(t, "s-1", "echo one; echo err >&2; until [ -e go ]; do sleep .01; done; echo two; exit 4")
	var stdout, stderr string
	eventually(t, "the first output", func() bool {
		r, err := i.Read(t.Context(), id, "s-1")
		if err != nil || r.GetStatus().GetState() != stillRunning || r.GetStatus().GetExit() != nil {
			t.Fatalf("got %v, %v", r, err)
		}
		stdout, stderr = stdout+string(r.GetStdout()), stderr+string(r.GetStderr())
		return len(stdout) >= 4 && len(stderr) >= 4
	})
	if stdout != "one\n" || stderr != "err\n" {
		t.Errorf("got %q, %q", stdout, stderr)
	}
	if r, err := i.Read(t.Context(), id, "s-1"); err != nil || len(r.GetStdout())+len(r.GetStderr()) > 0 || r.GetStatus().GetState() != stillRunning {
		t.Errorf("nothing new: got %v, %v", r, err)
	}
	i.touch(t, "go")
	stdout, last := i.read(t, id, "s-1")
	if stdout != "two\n" || last.GetStatus().GetState() != completed || last.GetStatus().GetExit().GetCode() != 4 {
		t.Errorf("got %q, %v", stdout, last)
	}
	if r, err := i.Read(t.Context(), id, "s-1"); err != nil || len(r.GetStdout()) > 0 || r.GetStatus().GetState() != completed {
		t.Errorf("after the end: got %v, %v", r, err)
	}
}

// touch makes a file in the sessions' directory.
func (i *instance) touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(i.dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func taskIDs(t *testing.T, e Executor) {
	i := e.start(t, nil)
	for n := range 5 {
		session := fmt.Sprint("s-", n%2)
		id := i.task(t, session, "true")
		i.read(t, id, session)
		if want := fmt.Sprint("bash-", n+1); id != want {
			t.Errorf("got %s, want %s", id, want)
		}
	}
}

func dropped(t *testing.T, e Executor) {
	i := e.start(t, config{"outputLimitBytes": 1000})
	id := i.task(t, "s-1", `seq 1 1000; seq 1 10 >&2; sleep .1`)
	eventually(t, "over", func() bool { return len(i.events.ends(t)) == 1 })
	r, err := i.Read(t.Context(), id, "s-1")
	if err != nil || !r.GetDropped() || len(r.GetStdout()) != 1000 || !strings.HasSuffix(string(r.GetStdout()), "\n1000\n") || len(r.GetSpillPaths()) != 1 {
		t.Fatalf("got %v, %v", r, err)
	}
	if whole, err := os.ReadFile(r.GetSpillPaths()[0]); err != nil || !strings.HasPrefix(string(whole), "1\n2\n") || len(whole) != 3893 {
		t.Errorf("got %d bytes, %v", len(whole), err)
	}
}

func heldBack(t *testing.T, e Executor) {
	i := e.start(t, nil)
	id := i.task(t, "s-1", `printf 'a\xe2\x82'; until [ -e go ]; do sleep .01; done; printf '\xac\xe2'`)
	read := ""
	eventually(t, "the first character", func() bool {
		r, err := i.Read(t.Context(), id, "s-1")
		if err != nil {
			t.Fatal(err)
		}
		read += string(r.GetStdout())
		return read != ""
	})
	if read != "a" {
		t.Errorf("got %q", read)
	}
	i.touch(t, "go")
	if stdout, _ := i.read(t, id, "s-1"); stdout != "€\xe2" {
		t.Errorf("got %q", stdout)
	}
}

func killedTask(t *testing.T, e Executor) {
	i := e.start(t, config{"killGraceMs": 500})
	id := i.task(t, "s-1", "trap '' TERM; echo ready; while :; do sleep .05; done")
	i.readUntil(t, id, "s-1", "ready")
	if finished, err := i.Client.Kill(t.Context(), id, "s-1"); err != nil || finished {
		t.Errorf("got %v, %v", finished, err)
	}
	if r, err := i.Read(t.Context(), id, "s-1"); err != nil || r.GetStatus().GetState() != wasKilled || r.GetStatus().GetExit() != nil {
		t.Errorf("asked for, not closed: got %v, %v", r, err)
	}
	_, last := i.read(t, id, "s-1")
	if last.GetStatus().GetState() != wasKilled || last.GetStatus().GetExit().GetSignal() != "SIGKILL" {
		t.Errorf("got %v", last)
	}
	if finished, err := i.Client.Kill(t.Context(), id, "s-1"); err != nil || !finished {
		t.Errorf("got %v, %v", finished, err)
	}
}

func anySignal(t *testing.T, e Executor) {
	i := e.start(t, nil)
	for _, name := range []string{"SEGV", "HUP"} {
		_, last := i.read(t, i.task(t, "s-1", "kill -"+name+" $$"), "s-1")
		if last.GetStatus().GetState() != wasKilled || last.GetStatus().GetExit().GetSignal() != "SIG"+name {
			t.Errorf("got %v", last)
		}
	}
}

func taskStdin(t *testing.T, e Executor) {
	i := e.start(t, nil)
	if stdout, last := i.read(t, i.task(t, "s-1", "cat; echo rc=$?"), "s-1"); stdout != "rc=0\n" || last.GetStatus().GetState() != completed {
		t.Errorf("got %q, %v", stdout, last)
	}
}

func notSpawned(t *testing.T, e Executor) {
	i := e.start(t, nil)
	id, err := i.Start(t.Context(), &bashv1.Command{Command: "true", Workdir: "/gone", SessionId: "s-1"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := i.Read(t.Context(), id, "s-1")
	if err != nil || string(r.GetStderr()) != "working directory does not exist: /gone\n" || r.GetStatus().GetState() != wasKilled || r.GetStatus().GetExit() != nil {
		t.Errorf("got %v, %v", r, err)
	}
	if finished, err := i.Client.Kill(t.Context(), id, "s-1"); err != nil || !finished {
		t.Errorf("got %v, %v", finished, err)
	}
	eventually(t, "its notice", func() bool { return len(i.events.ends(t)) == 1 })
}

func list(t *testing.T, e Executor) {
	i := e.start(t, nil)
	sleep := seconds()
	i.read(t, i.task(t, "", "exit 2"), "")
	i.task(t, "s-1", "sleep "+sleep)
	tasks, err := i.List(t.Context())
	if err != nil || len(tasks) != 2 {
		t.Fatalf("got %v, %v", tasks, err)
	}
	if first := tasks[0]; first.GetId() != "bash-1" || first.GetSessionId() != "" || first.GetStatus().GetExit().GetCode() != 2 || first.GetEnded() == nil || first.GetPid() == 0 {
		t.Errorf("got %v", first)
	}
	if second := tasks[1]; second.GetId() != "bash-2" || second.GetSessionId() != "s-1" || second.GetCommand() != "sleep "+sleep ||
		second.GetCwd() != i.dir || second.GetEnded() != nil || second.GetStatus().GetState() != stillRunning || second.GetStarted() == nil {
		t.Errorf("got %v", second)
	}
}

var fenceRules = []rule{
	{"another session or none may neither read nor kill", fence},
	{"a task started without a session is open to all", openToAll},
}

func fence(t *testing.T, e Executor) {
	i := e.start(t, nil)
	sleep := seconds()
	id := i.task(t, "s-1", "echo mine; sleep "+sleep)
	eventually(t, "the command running", func() bool { return len(running("sleep", sleep)) > 0 })
	refused := func() {
		t.Helper()
		for _, session := range []string{"s-2", ""} {
			_, err := i.Read(t.Context(), id, session)
			expectError(t, err, codes.PermissionDenied, "task bash-1 belongs to another session")
			_, err = i.Client.Kill(t.Context(), id, session)
			expectError(t, err, codes.PermissionDenied, "task bash-1 belongs to another session")
		}
	}
	refused()
	_, err := i.Read(t.Context(), "bash-99", "s-1")
	expectError(t, err, codes.NotFound, `unknown bash task "bash-99"`)
	_, err = i.Client.Kill(t.Context(), "bash-99", "s-1")
	expectError(t, err, codes.NotFound, `unknown bash task "bash-99"`)
	if len(running("sleep", sleep)) == 0 {
		t.Error("a refused kill killed")
	}
	if _, err := i.Client.Kill(t.Context(), id, "s-1"); err != nil {
		t.Error(err)
	}
	if stdout, _ := i.read(t, id, "s-1"); stdout != "mine\n" {
		t.Errorf("a refused read took output: %q", stdout)
	}
	refused()
}

func openToAll(t *testing.T, e Executor) {
	i := e.start(t, nil)
	id := i.task(t, "", "echo all; sleep 1000")
	i.readUntil(t, id, "s-2", "all\n")
	if finished, err := i.Client.Kill(t.Context(), id, "s-3"); err != nil || finished {
		t.Errorf("got %v, %v", finished, err)
	}
}

var noticeRules = []rule{
	{"exactly one when a task ends, with its owner and how it ended", notice},
	{"it waits for the events", noticeWaits},
}

func notice(t *testing.T, e Executor) {
	i := e.start(t, nil)
	i.read(t, i.task(t, "s-1", "exit 6"), "s-1")
	i.read(t, i.task(t, "s-2", "kill -HUP $$"), "s-2")
	eventually(t, "both", func() bool { return len(i.events.ends(t)) >= 2 })
	want := []*bashv1.TaskFinished{
		{TaskId: "bash-1", SessionId: "s-1", Status: &bashv1.TaskStatus{State: completed, Exit: &bashv1.Exit{Code: 6}}},
		{TaskId: "bash-2", SessionId: "s-2", Status: &bashv1.TaskStatus{State: wasKilled, Exit: &bashv1.Exit{Signal: "SIGHUP"}}},
	}
	ends := i.events.ends(t)
	for n := range want {
		if len(ends) != len(want) || !proto.Equal(ends[n], want[n]) {
			t.Fatalf("got %v, want %v", ends, want)
		}
	}
}

func noticeWaits(t *testing.T, e Executor) {
	i := e.start(t, nil)
	i.events.mu.Lock()
	i.events.fail = 3
	i.events.mu.Unlock()
	i.task(t, "s-1", "true")
	eventually(t, "the notice", func() bool { return len(i.events.ends(t)) == 1 })
}

var lossRules = []rule{
	{"reading and killing say that the task was lost, and its owner gets one notice", loss},
	{"also after the next crash", lossTwice},
	{"a retired executor that still runs has lost nothing, whatever becomes of its successor", noLoss},
}

// crash is the host's word on how an executor died.
const crash = "signal: killed"

func loss(t *testing.T, e Executor) {
	before := e.startProcess(t)
	sleep := seconds()
	owned, open, ended := before.task(t, "s-1", "sleep "+sleep), before.task(t, "", "sleep "+sleep), before.task(t, "s-2", "true")
	eventually(t, "the end told", func() bool { return len(before.events.ends(t)) == 1 })
	before.Instance.Kill()
	eventually(t, "the tasks gone", func() bool { return len(running("sleep", sleep)) == 0 })

	i := e.restart(t, before, crash)
	_, err := i.Read(t.Context(), owned, "s-2")
	expectError(t, err, codes.PermissionDenied, "task bash-1 belongs to another session")
	_, err = i.Client.Kill(t.Context(), owned, "")
	expectError(t, err, codes.PermissionDenied, "task bash-1 belongs to another session")
	_, err = i.Read(t.Context(), owned, "s-1")
	said := status.Convert(err).Message()
	form := regexp.MustCompile(`^task bash-1 was lost: .*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC.*signal: killed`)
	if status.Code(err) != codes.NotFound || !form.MatchString(said) {
		t.Errorf("got %v", err)
	}
	_, err = i.Client.Kill(t.Context(), owned, "s-1")
	expectError(t, err, codes.NotFound, said)
	for id, session := range map[string]string{open: "s-3", ended: "s-2"} {
		if _, err := i.Read(t.Context(), id, session); !strings.HasPrefix(status.Convert(err).Message(), "task "+id+" was lost: ") {
			t.Errorf("%s: got %v", id, err)
		}
	}
	eventually(t, "the notices", func() bool { return len(i.lost(t)) >= 2 })
	if lost := i.lost(t); len(lost) != 2 || lost[0].GetTaskId() != owned || lost[0].GetSessionId() != "s-1" || lost[0].GetLost() != said || lost[1].GetTaskId() != open {
		t.Errorf("told: %v", lost)
	}
	if tasks, err := i.List(t.Context()); err != nil || len(tasks) > 0 {
		t.Errorf("listed: %v, %v", tasks, err)
	}
	if id := i.task(t, "s-1", "true"); id != "bash-4" {
		t.Errorf("the next task is %s", id)
	}
}

// lost are the losses that were told, but for those that a session takes for repetitions: of tasks whose end it knows.
func (i *instance) lost(t *testing.T) (lost []*bashv1.TaskFinished) {
	t.Helper()
	known := map[string]bool{}
	for _, end := range i.events.ends(t) {
		if end.GetLost() != "" && !known[end.GetTaskId()] {
			lost = append(lost, end)
		}
		known[end.GetTaskId()] = true
	}
	return lost
}

func lossTwice(t *testing.T, e Executor) {
	first := e.startProcess(t)
	old := first.task(t, "s-1", "sleep "+seconds())
	first.Instance.Kill()
	second := e.restart(t, first, "the first crash")
	young := second.task(t, "s-1", "sleep "+seconds())
	second.Instance.Kill()
	third := e.restart(t, second, "the second crash")
	for id, how := range map[string]string{old: "the first crash", young: "the second crash"} {
		if _, err := third.Read(t.Context(), id, "s-1"); !strings.Contains(status.Convert(err).Message(), how) {
			t.Errorf("%s: got %v", id, err)
		}
	}
	eventually(t, "both told", func() bool { return len(third.lost(t)) == 2 })
}

func noLoss(t *testing.T, e Executor) {
	before := e.startProcess(t)
	id := before.task(t, "s-1", "sleep "+seconds())
	before.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	successor := e.restart(t, before, "")
	young := successor.task(t, "s-1", "sleep "+seconds())
	successor.Instance.Kill()
	i := e.restart(t, successor, crash)
	eventually(t, "the loss told", func() bool { return len(i.lost(t)) == 1 })
	if lost := i.lost(t); lost[0].GetTaskId() != young {
		t.Errorf("told: %v", lost)
	}
	if r, err := before.Read(t.Context(), id, "s-1"); err != nil || r.GetStatus().GetState() != stillRunning {
		t.Errorf("the retired one: got %v, %v", r, err)
	}
}
