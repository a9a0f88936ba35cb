package executor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

// escapes are commands that leave SLEEP behind in every way a process has.
var escapes = []struct{ name, command string }{
	{"in the shell's place", `sleep SLEEP`},
	{"a child", `sleep SLEEP; echo`},
	{"ignoring SIGTERM", `trap '' TERM; sleep SLEEP; sleep SLEEP`},
	{"a child that ignores SIGTERM when the shell does not", `bash -c 'trap "" TERM; sleep SLEEP; sleep SLEEP' & wait`},
	{"output redirected", `sleep SLEEP >/dev/null 2>&1 & wait`},
	{"a pipe", `(while :; do echo t; sleep .05; done) | cat >/dev/null & sleep SLEEP`},
	{"a session of its own", `setsid sleep SLEEP & wait`},
	{"a session of its own, ignoring SIGTERM", `setsid bash -c 'trap "" TERM; while :; do sleep SLEEP; done' & wait`},
	{"a daemon", `(setsid sleep SLEEP >/dev/null 2>&1 &); sleep 1000`},
	{"a group of its own", `set -m; sleep SLEEP & wait`},
	{"an empty environment", `env -i sleep SLEEP & wait`},
	{"a session of its own and an empty environment", `env -i setsid sleep SLEEP & wait`},
	{"stopped", `sleep SLEEP & sleep .1; kill -STOP $!; wait`},
}

func TestTimeLimitLeavesNothingOfACommand(t *testing.T) {
	f := start(t, executor.Options{KillGrace: 300 * time.Millisecond})
	for _, escape := range escapes {
		t.Run(escape.name, func(t *testing.T) {
			t.Parallel()
			sleep := sleeper()
			command := strings.ReplaceAll(escape.command, "SLEEP", sleep)
			r := f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: command}, TimeoutMs: 400})
			if !r.GetTimedOut() {
				t.Errorf("got %v", r)
			}
			if pids := pidsOf("sleep", sleep); len(pids) > 0 {
				t.Errorf("processes are left: %v", pids)
			}
		})
	}
}

func TestCancelGivesThePartialOutputWhenEverythingIsGone(t *testing.T) {
	f := start(t, executor.Options{})
	sleep := sleeper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := f.Run(ctx, &bashv1.RunRequest_Run{Command: &bashv1.Command{
		Command: "echo begun; (setsid sleep " + sleep + " &); sleep " + sleep,
	}}, func(data []byte) {
		if strings.Contains(string(data), "begun") {
			cancel()
		}
	})
	if err != nil || !r.GetAborted() || r.GetTimedOut() || string(r.GetStdout().GetData()) != "begun\n" || r.GetExit().GetSignal() != "SIGTERM" {
		t.Errorf("got %v, %v", r, err)
	}
	if running("sleep", sleep) {
		t.Error("something is left")
	}
}

func TestEndingTheCallKillsTheCommand(t *testing.T) {
	f := start(t, executor.Options{})
	sleep := sleeper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := bashv1.NewBashClient(f.instance.Conn()).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	run := &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "echo begun; sleep " + sleep}}
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: run}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil || !running("sleep", sleep) {
		t.Fatalf("not running: %v", err)
	}
	cancel()
	eventually(t, "the command gone", func() bool { return !running("sleep", sleep) })
}

func TestEndOfTheRequestsIsNoCancel(t *testing.T) {
	f := start(t, executor.Options{})
	stream, err := bashv1.NewBashClient(f.instance.Conn()).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "sleep .2"}}
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: run}}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || r.GetResult().GetAborted() || r.GetResult().GetExit().GetSignal() != "" {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestFirstRequestMustBeTheCommand(t *testing.T) {
	f := start(t, executor.Options{})
	stream, err := bashv1.NewBashClient(f.instance.Conn()).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Cancel_{Cancel: &bashv1.RunRequest_Cancel{}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

func TestGraceIsKeptAndThenOver(t *testing.T) {
	f := start(t, executor.Options{KillGrace: 400 * time.Millisecond})
	r := f.runWith(t, &bashv1.RunRequest_Run{
		Command:   &bashv1.Command{Command: `trap 'echo got TERM' TERM; while :; do sleep .02; done`},
		TimeoutMs: 200,
	})
	took := time.Duration(r.GetDurationUs()) * time.Microsecond
	if string(r.GetStdout().GetData()) != "got TERM\n" || r.GetExit().GetSignal() != "SIGKILL" || took < 600*time.Millisecond || took > 3*time.Second {
		t.Errorf("after %v: %v", took, r)
	}
}

func TestCallEndsWhenTheShellEnds(t *testing.T) {
	f := start(t, executor.Options{})
	for _, test := range []struct{ name, command, want string }{
		{"a silent child holds the pipes", "sleep SLEEP & echo hi", "hi\n"},
		{"a writing child holds the pipes", "(echo first; exec 2>/dev/null; while :; do echo more || exit; done) & sleep .1; exit 3", "first\n"},
		{"all that was in the pipe is read", "seq 1 20000 | tail -c 60000; sleep SLEEP &", "20000\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sleep := sleeper()
			began := time.Now()
			r := f.run(t, strings.ReplaceAll(test.command, "SLEEP", sleep))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("took %v", took)
			}
			if !strings.Contains(string(r.GetStdout().GetData()), test.want) && !r.GetStdout().GetTruncated() {
				t.Errorf("got %.100q", r.GetStdout().GetData())
			}
			if strings.Contains(test.command, "SLEEP") && !running("sleep", sleep) {
				t.Error("the child was killed")
			}
		})
	}
}

// The child writes more than a pipe takes after the call's end and must not block on it.
func TestPipesOfAChildLeftBehindAreEmptied(t *testing.T) {
	f := start(t, executor.Options{})
	done := filepath.Join(t.TempDir(), "done")
	f.run(t, "(sleep .3; head -c 5000000 /dev/zero; echo x >"+done+") &")
	eventually(t, "the child done", func() bool { _, err := os.Stat(done); return err == nil })
}

func TestDeactivationKillsEverything(t *testing.T) {
	f := start(t, executor.Options{KillGrace: 300 * time.Millisecond})
	var sleeps []string
	for _, escape := range escapes {
		sleep := sleeper()
		sleeps = append(sleeps, sleep)
		f.task(t, "s-1", strings.ReplaceAll(escape.command, "SLEEP", sleep))
	}
	for _, straggler := range []string{
		"sleep SLEEP &", "setsid sleep SLEEP & ", "(setsid sleep SLEEP >/dev/null 2>&1 &)", "env -i setsid sleep SLEEP & sleep .1",
		"set -m; trap '' TERM; (trap '' TERM; exec sleep SLEEP) &",
	} {
		sleep := sleeper()
		sleeps = append(sleeps, sleep)
		f.run(t, strings.ReplaceAll(straggler, "SLEEP", sleep))
	}
	for i, sleep := range sleeps {
		eventually(t, fmt.Sprint(i, sleep, " running"), func() bool { return running("sleep", sleep) })
	}
	f.instance.Stop()
	for _, sleep := range sleeps {
		if pids := pidsOf("sleep", sleep); len(pids) > 0 {
			t.Errorf("processes are left: sleep %s: %v", sleep, pids)
		}
	}
	if events := f.events.all(); len(events) > 0 {
		t.Errorf("notices were sent: %v", events)
	}
}

func TestDeactivationEndsCallsInFlight(t *testing.T) {
	f := start(t, executor.Options{})
	results := make(chan *bashv1.Result)
	sleep := sleeper()
	go func() {
		r, _ := f.Run(context.Background(), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "echo a; sleep " + sleep}}, nil)
		results <- r
	}()
	eventually(t, "the command running", func() bool { return running("sleep", sleep) })
	f.instance.Stop()
	if r := <-results; !r.GetAborted() || string(r.GetStdout().GetData()) != "a\n" {
		t.Errorf("got %v", r)
	}
}

func TestGraceIsCutWhenTheHostStops(t *testing.T) {
	f := start(t, executor.Options{KillGrace: time.Minute})
	sleep := sleeper()
	f.task(t, "", "trap '' TERM; sleep "+sleep+"; sleep "+sleep)
	eventually(t, "the command running", func() bool { return running("sleep", sleep) })
	began := time.Now()
	f.instance.Retire(pluginv1.RetireRequest_REASON_SHUTDOWN)
	f.instance.Stop()
	if took := time.Since(began); took < 500*time.Millisecond || took > 2*time.Second || running("sleep", sleep) {
		t.Errorf("took %v", took)
	}
}

// The task's group is empty when the kill comes: it has finished, and that stays what it did.
func TestKillAfterTheEndIsNone(t *testing.T) {
	f := start(t, executor.Options{})
	id := f.task(t, "", "exit 3")
	f.readAll(t, id, "")
	finished, err := f.Kill(t.Context(), id, "")
	if err != nil || !finished {
		t.Errorf("got %v, %v", finished, err)
	}
	if r, err := f.Read(t.Context(), id, ""); err != nil || r.GetStatus().GetState() != bashv1.TaskStatus_STATE_COMPLETED || r.GetStatus().GetExit().GetCode() != 3 {
		t.Errorf("got %v, %v", r, err)
	}
}
