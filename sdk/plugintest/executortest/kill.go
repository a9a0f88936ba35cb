package executortest

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// An executor that was stopped past the time limit finds both due: the command that had finished has its result.
func resultBeatsTimer(t *testing.T, e Executor) {
	i := e.startProcess(t)
	results := make(chan *bashv1.Result, 1)
	began := make(chan struct{})
	go func() {
		run := &bashv1.RunRequest_Run{Command: i.command("s-1", `echo began; sleep .4; echo ok`), TimeoutMs: 800}
		r, _ := i.Run(context.Background(), run, func([]byte) {
			select {
			case <-began:
			default:
				close(began)
			}
		})
		results <- r
	}()
	<-began
	if err := syscall.Kill(i.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(1200 * time.Millisecond)
	if err := syscall.Kill(i.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r := <-results
	expectOut(t, r, "began\nok\n", 0)
	if r.GetTimedOut() {
		t.Error("it has timed out")
	}
}

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
	{hidden, `env -i setsid sleep SLEEP & wait`},
	{"stopped", `sleep SLEEP & sleep .1; kill -STOP $!; wait`},
}

// hidden is the escape with neither mark nor group: a living executor finds it by its parents, who cannot once it was killed.
const hidden = "a session of its own and an empty environment"

// stragglers leave SLEEP behind when their shells have ended.
var stragglers = []string{
	"sleep SLEEP &", "setsid sleep SLEEP & ", "(setsid sleep SLEEP >/dev/null 2>&1 &)", "env -i setsid sleep SLEEP & sleep .1",
	"set -m; trap '' TERM; (trap '' TERM; exec sleep SLEEP) &",
}

var killRules = []rule{
	{"it goes on until nothing of the command is left", nothingLeft},
	{"SIGTERM to the group, SIGKILL after the grace period", grace},
	{"cancelling gives the partial output when everything is gone", cancelling},
	{"ending the call kills the command", endingTheCall},
	{"the end of the requests is no cancel", endOfRequests},
	{"the first request of a call must be the command", firstRequest},
	{"an emptied group is never signalled again", emptiedGroup},
	{"removing the executor kills everything, waits for it, and sends no notices", removing},
	{"removing the executor ends the calls in flight", removingInFlight},
	{"when the host stops the grace period is cut to 500 ms", stopping},
	{"nothing survives an executor that is killed", killed},
}

func nothingLeft(t *testing.T, e Executor) {
	i := e.start(t, config{"killGraceMs": 300})
	for _, escape := range escapes {
		t.Run(escape.name, func(t *testing.T) {
			t.Parallel()
			sleep := seconds()
			r := i.runFor(t, strings.ReplaceAll(escape.command, "SLEEP", sleep), 400)
			if !r.GetTimedOut() {
				t.Errorf("got %v", r)
			}
			if left := running("sleep", sleep); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
		})
	}
}

func grace(t *testing.T, e Executor) {
	i := e.start(t, config{"killGraceMs": 400})
	r := i.runFor(t, `trap 'echo got TERM' TERM; while :; do sleep .02; done`, 200)
	took := time.Duration(r.GetDurationUs()) * time.Microsecond
	if string(r.GetStdout().GetData()) != "got TERM\n" || r.GetExit().GetSignal() != "SIGKILL" || took < 600*time.Millisecond || took > 4*time.Second {
		t.Errorf("after %v: %v", took, r)
	}
}

func cancelling(t *testing.T, e Executor) {
	i := e.start(t, nil)
	sleep := seconds()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := i.command("s-1", "echo begun; (setsid sleep "+sleep+" &); sleep "+sleep)
	r, err := i.Run(ctx, &bashv1.RunRequest_Run{Command: command}, func(data []byte) {
		if strings.Contains(string(data), "begun") {
			cancel()
		}
	})
	if err != nil || !r.GetAborted() || r.GetTimedOut() || string(r.GetStdout().GetData()) != "begun\n" || r.GetExit().GetSignal() != "SIGTERM" {
		t.Errorf("got %v, %v", r, err)
	}
	if left := running("sleep", sleep); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// stream runs a command by the bare seam.
func (i *instance) stream(ctx context.Context, t *testing.T, text string) bashv1.Bash_RunClient {
	t.Helper()
	stream, err := bashv1.NewBashClient(i.Conn()).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	run := &bashv1.RunRequest_Run{Command: i.command("s-1", text)}
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: run}}); err != nil {
		t.Fatal(err)
	}
	return stream
}

func endingTheCall(t *testing.T, e Executor) {
	i := e.start(t, nil)
	sleep := seconds()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i.stream(ctx, t, "sleep "+sleep)
	eventually(t, "the command running", func() bool { return len(running("sleep", sleep)) > 0 })
	cancel()
	eventually(t, "the command gone", func() bool { return len(running("sleep", sleep)) == 0 })
}

func endOfRequests(t *testing.T, e Executor) {
	stream := e.start(t, nil).stream(t.Context(), t, "sleep .2")
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || r.GetResult().GetAborted() || r.GetResult().GetExit().GetSignal() != "" {
		t.Errorf("got %v, %v", r, err)
	}
}

func firstRequest(t *testing.T, e Executor) {
	stream, err := bashv1.NewBashClient(e.start(t, nil).Conn()).Run(t.Context())
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

// The task's group is empty when the kill comes: it has finished, and that stays what it did.
func emptiedGroup(t *testing.T, e Executor) {
	i := e.start(t, nil)
	id := i.task(t, "s-1", "exit 3")
	i.read(t, id, "s-1")
	if finished, err := i.Client.Kill(t.Context(), id, "s-1"); err != nil || !finished {
		t.Errorf("got %v, %v", finished, err)
	}
	if r, err := i.Read(t.Context(), id, "s-1"); err != nil || r.GetStatus().GetState() != completed || r.GetStatus().GetExit().GetCode() != 3 {
		t.Errorf("got %v, %v", r, err)
	}
}

// busy starts all escapes and stragglers and returns the arguments of their sleeps, which run.
func (i *instance) busy(t *testing.T, except string) (sleeps []string) {
	t.Helper()
	for _, escape := range escapes {
		if escape.name == except {
			continue
		}
		sleep := seconds()
		sleeps = append(sleeps, sleep)
		i.task(t, "s-1", strings.ReplaceAll(escape.command, "SLEEP", sleep))
	}
	for _, straggler := range stragglers {
		if except == hidden && strings.HasPrefix(straggler, "env -i") {
			continue
		}
		sleep := seconds()
		sleeps = append(sleeps, sleep)
		i.run(t, strings.ReplaceAll(straggler, "SLEEP", sleep))
	}
	for _, sleep := range sleeps {
		eventually(t, "sleep "+sleep+" running", func() bool { return len(running("sleep", sleep)) > 0 })
	}
	return sleeps
}

func removing(t *testing.T, e Executor) {
	i := e.start(t, config{"killGraceMs": 300})
	sleeps := i.busy(t, "")
	i.Stop()
	for _, sleep := range sleeps {
		if left := running("sleep", sleep); len(left) > 0 {
			t.Errorf("processes are left: sleep %s: %v", sleep, left)
		}
	}
	if ends := i.events.ends(t); len(ends) > 0 {
		t.Errorf("notices were sent: %v", ends)
	}
}

func removingInFlight(t *testing.T, e Executor) {
	i := e.start(t, nil)
	results := make(chan *bashv1.Result)
	sleep := seconds()
	go func() {
		r, _ := i.Run(context.Background(), &bashv1.RunRequest_Run{Command: i.command("s-1", "echo a; sleep "+sleep)}, nil)
		results <- r
	}()
	eventually(t, "the command running", func() bool { return len(running("sleep", sleep)) > 0 })
	i.Stop()
	if r := <-results; !r.GetAborted() || string(r.GetStdout().GetData()) != "a\n" {
		t.Errorf("got %v", r)
	}
}

func stopping(t *testing.T, e Executor) {
	i := e.start(t, config{"killGraceMs": 60_000})
	sleep := seconds()
	i.task(t, "s-1", "trap '' TERM; sleep "+sleep+"; sleep "+sleep)
	eventually(t, "the command running", func() bool { return len(running("sleep", sleep)) > 0 })
	began := time.Now()
	i.Retire(pluginv1.RetireRequest_REASON_SHUTDOWN)
	i.Stop()
	if took := time.Since(began); took < 500*time.Millisecond || took > 3*time.Second || len(running("sleep", sleep)) > 0 {
		t.Errorf("took %v", took)
	}
}

func killed(t *testing.T, e Executor) {
	i := e.startProcess(t)
	sleeps := i.busy(t, hidden)
	i.Instance.Kill()
	began := time.Now()
	for _, sleep := range sleeps {
		eventually(t, "sleep "+sleep+" gone", func() bool { return len(running("sleep", sleep)) == 0 })
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}
