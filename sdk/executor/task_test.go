package executor_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

const (
	stateRunning   = bashv1.TaskStatus_STATE_RUNNING
	stateCompleted = bashv1.TaskStatus_STATE_COMPLETED
	stateKilled    = bashv1.TaskStatus_STATE_KILLED
)

func TestTaskIsReadInIncrements(t *testing.T) {
	f := start(t, executor.Options{Timeout: 50 * time.Millisecond, MaxTimeout: 50 * time.Millisecond}) // which tasks do not have
	release := t.TempDir() + "/go"
	began := time.Now()
	id := f.task(t, "s-1", "echo one; echo err >&2; until [ -e "+release+" ]; do sleep .01; done; echo two; exit 4")
	if id != "bash-1" || time.Since(began) > time.Second {
		t.Errorf("got %s after %v", id, time.Since(began))
	}
	var first *bashv1.ReadResponse
	eventually(t, "the first output", func() bool {
		r, err := f.Read(t.Context(), id, "s-1")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = r
		}
		first.Stdout, first.Stderr = append(first.Stdout, r.GetStdout()...), append(first.Stderr, r.GetStderr()...)
		return len(first.GetStdout()) >= 4 && len(first.GetStderr()) >= 4
	})
	if first.GetStatus().GetState() != stateRunning || first.GetStatus().GetExit() != nil {
		t.Errorf("got %v", first)
	}
	<-time.After(100 * time.Millisecond)
	if r, err := f.Read(t.Context(), id, "s-1"); err != nil || len(r.GetStdout())+len(r.GetStderr()) > 0 || r.GetStatus().GetState() != stateRunning {
		t.Errorf("nothing new: got %v, %v", r, err)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _, last := f.readAll(t, id, "s-1")
	if stdout != "two\n" || last.GetStatus().GetState() != stateCompleted || last.GetStatus().GetExit().GetCode() != 4 {
		t.Errorf("got %q, %v", stdout, last)
	}
	if r, err := f.Read(t.Context(), id, "s-1"); err != nil || len(r.GetStdout()) > 0 || r.GetStatus().GetState() != stateCompleted {
		t.Errorf("after the end: got %v, %v", r, err)
	}
}

func TestReadHoldsAnIncompleteCharacterBack(t *testing.T) {
	f := start(t, executor.Options{})
	release := t.TempDir() + "/go"
	id := f.task(t, "", `printf 'a\xe2\x82'; until [ -e `+release+` ]; do sleep .01; done; printf '\xac\xe2'`)
	read := ""
	eventually(t, "the first character", func() bool {
		r, err := f.Read(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		read += string(r.GetStdout())
		return read != ""
	})
	if read != "a" {
		t.Errorf("got %q", read)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if stdout, _, _ := f.readAll(t, id, ""); stdout != "€\xe2" {
		t.Errorf("got %q", stdout)
	}
}

func TestReadSaysWhatWasDropped(t *testing.T) {
	f := start(t, executor.Options{OutputLimit: 1000})
	id := f.task(t, "", `seq 1 1000; sleep .1`)
	eventually(t, "over", func() bool {
		answer, err := f.List(t.Context())
		return err == nil && answer[0].GetStatus().GetState() == stateCompleted
	})
	r, err := f.Read(t.Context(), id, "")
	if err != nil || !r.GetDropped() || len(r.GetStdout()) != 1000 || !strings.HasSuffix(string(r.GetStdout()), "\n1000\n") || len(r.GetSpillPaths()) != 1 {
		t.Fatalf("got %v, %v", r, err)
	}
	if whole, err := os.ReadFile(r.GetSpillPaths()[0]); err != nil || !strings.HasPrefix(string(whole), "1\n2\n") || len(whole) != 3893 {
		t.Errorf("got %d bytes, %v", len(whole), err)
	}
}

func TestKilledTask(t *testing.T) {
	f := start(t, executor.Options{KillGrace: 500 * time.Millisecond})
	id := f.task(t, "s-1", "trap '' TERM; echo ready; while :; do sleep .05; done")
	eventually(t, "ready", func() bool {
		r, err := f.Read(t.Context(), id, "s-1")
		return err == nil && len(r.GetStdout()) > 0
	})
	if finished, err := f.Kill(t.Context(), id, "s-1"); err != nil || finished {
		t.Errorf("got %v, %v", finished, err)
	}
	if r, err := f.Read(t.Context(), id, "s-1"); err != nil || r.GetStatus().GetState() != stateKilled || r.GetStatus().GetExit() != nil {
		t.Errorf("asked for, not closed: got %v, %v", r, err)
	}
	_, _, last := f.readAll(t, id, "s-1")
	if last.GetStatus().GetState() != stateKilled || last.GetStatus().GetExit().GetSignal() != "SIGKILL" {
		t.Errorf("got %v", last)
	}
	if finished, err := f.Kill(t.Context(), id, "s-1"); err != nil || !finished {
		t.Errorf("got %v, %v", finished, err)
	}
}

func TestDeathByAnySignalIsKilled(t *testing.T) {
	f := start(t, executor.Options{})
	_, _, last := f.readAll(t, f.task(t, "", "kill -SEGV $$"), "")
	if last.GetStatus().GetState() != stateKilled || last.GetStatus().GetExit().GetSignal() != "SIGSEGV" {
		t.Errorf("got %v", last)
	}
}

func TestTaskThatCannotBeStarted(t *testing.T) {
	f := start(t, executor.Options{})
	id, err := f.Start(t.Context(), &bashv1.Command{Command: "true", Workdir: "/gone", SessionId: "s-1"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Read(t.Context(), id, "s-1")
	if err != nil || string(r.GetStderr()) != "working directory does not exist: /gone\n" || r.GetStatus().GetState() != stateKilled || r.GetStatus().GetExit() != nil {
		t.Errorf("got %v, %v", r, err)
	}
	if finished, err := f.Kill(t.Context(), id, "s-1"); err != nil || !finished {
		t.Errorf("got %v, %v", finished, err)
	}
	eventually(t, "its notice", func() bool { return len(f.events.all()) == 1 })
}

func TestFence(t *testing.T) {
	f := start(t, executor.Options{})
	sleep := sleeper()
	owned, open := f.task(t, "s-1", "echo mine; sleep "+sleep), f.task(t, "", "echo all")
	for _, test := range []struct {
		name, id, session string
		code              codes.Code
		message           string
	}{
		{"another session", owned, "s-2", codes.PermissionDenied, "task bash-1 belongs to another session"},
		{"no session", owned, "", codes.PermissionDenied, "task bash-1 belongs to another session"},
		{"unknown", "bash-99", "s-1", codes.NotFound, `unknown bash task "bash-99"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := f.Read(t.Context(), test.id, test.session); status.Code(err) != test.code || status.Convert(err).Message() != test.message {
				t.Errorf("read: %v", err)
			}
			if _, err := f.Kill(t.Context(), test.id, test.session); status.Code(err) != test.code || status.Convert(err).Message() != test.message {
				t.Errorf("kill: %v", err)
			}
		})
	}
	if _, err := f.Read(t.Context(), open, "s-2"); err != nil {
		t.Errorf("open to all: %v", err)
	}
	if !running("sleep", sleep) {
		t.Error("a refused kill killed")
	}
	if _, err := f.Kill(t.Context(), owned, "s-1"); err != nil {
		t.Error(err)
	}
	if stdout, _, _ := f.readAll(t, owned, "s-1"); stdout != "mine\n" {
		t.Errorf("a refused read took output: %q", stdout)
	}
	if _, err := f.Read(t.Context(), owned, "s-2"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("after completion: %v", err)
	}
}

func TestListIsOldestFirst(t *testing.T) {
	f := start(t, executor.Options{})
	sleep := sleeper()
	f.readAll(t, f.task(t, "", "exit 2"), "")
	f.task(t, "s-1", "sleep "+sleep)
	tasks, err := f.List(t.Context())
	if err != nil || len(tasks) != 2 {
		t.Fatalf("got %v, %v", tasks, err)
	}
	cwd, _ := os.Getwd()
	if first := tasks[0]; first.GetId() != "bash-1" || first.GetSessionId() != "" || first.GetStatus().GetExit().GetCode() != 2 || first.GetEnded() == nil || first.GetPid() == 0 {
		t.Errorf("got %v", first)
	}
	if second := tasks[1]; second.GetId() != "bash-2" || second.GetSessionId() != "s-1" || second.GetCommand() != "sleep "+sleep ||
		second.GetCwd() != cwd || second.GetEnded() != nil || second.GetStatus().GetState() != stateRunning || second.GetStarted() == nil {
		t.Errorf("got %v", second)
	}
}

func TestNoticeIsPublishedOnceAndWaitsForTheEvents(t *testing.T) {
	f := start(t, executor.Options{})
	f.events.mu.Lock()
	f.events.fail = 3
	f.events.mu.Unlock()
	id := f.task(t, "s-1", "exit 6")
	eventually(t, "the notice", func() bool { return len(f.events.all()) > 0 })
	events := f.events.all()
	var finished bashv1.TaskFinished
	if err := proto.Unmarshal(events[0].GetData(), &finished); err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].GetTopic() != "bash.task.finished" || events[0].GetKey() != id+":finished" ||
		finished.GetTaskId() != id || finished.GetSessionId() != "s-1" || finished.GetStatus().GetState() != stateCompleted || finished.GetStatus().GetExit().GetCode() != 6 {
		t.Errorf("got %v, %v", events, &finished)
	}
}

func TestRetiredInstanceLetsGoOfTasksThatAreRead(t *testing.T) {
	f := start(t, executor.Options{})
	before := f.task(t, "", "echo before")
	eventually(t, "its notice", func() bool { return len(f.events.all()) == 1 })
	running := f.task(t, "", "sleep .3; echo after")
	f.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	if stdout, _, _ := f.readAll(t, before, ""); stdout != "before\n" {
		t.Errorf("got %q", stdout)
	}
	eventually(t, "the first claim released", func() bool { return slices.Equal(f.host.Claims(), []string{running}) })
	if stdout, _, _ := f.readAll(t, running, ""); stdout != "after\n" {
		t.Errorf("got %q", stdout)
	}
	eventually(t, "both claims released", func() bool { return len(f.host.Claims()) == 0 })
	if len(f.events.all()) != 2 {
		t.Errorf("got %v", f.events.all())
	}
}

func TestFinishedTasksAreForgottenWhenThereAreTooMany(t *testing.T) {
	f := start(t, executor.Options{})
	const many = 1020
	var starting sync.WaitGroup
	for range 8 {
		starting.Go(func() {
			for range many / 8 {
				f.task(t, "", "echo x")
			}
		})
	}
	starting.Wait()
	last := f.task(t, "", "echo last")
	eventually(t, "the oldest forgotten", func() bool { return len(f.host.Claims()) == 1000 })
	if stdout, _, _ := f.readAll(t, last, ""); stdout != "last\n" {
		t.Errorf("got %q", stdout)
	}
	forgotten := 0
	for i := range many {
		if _, err := f.Read(t.Context(), fmt.Sprintf("bash-%d", i+1), ""); status.Code(err) == codes.NotFound {
			forgotten++
		}
	}
	if forgotten != many+1-1000 && forgotten != many-1000 {
		t.Errorf("%d are forgotten", forgotten)
	}
}
