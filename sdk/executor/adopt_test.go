package executor_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/eventsv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/executor"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

// serving stands in for the host's router: it passes on what an executor says to the one that serves now.
type serving struct {
	bashv1.UnimplementedBashServer
	now     bashv1.BashClient
	refuse  error
	claimed []string // what calls carried
}

func (s *serving) Adopt(ctx context.Context, req *bashv1.AdoptRequest) (*bashv1.AdoptResponse, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	return s.now.Adopt(ctx, req)
}

func (s *serving) Read(ctx context.Context, req *bashv1.ReadRequest) (*bashv1.ReadResponse, error) {
	s.claimed = append(s.claimed, metadata.ValueFromIncomingContext(ctx, api.MetadataClaim)...)
	return s.now.Read(ctx, req)
}

// succession is an executor, the one that replaces it, and their host.
func succession(t *testing.T, o executor.Options) (old, successor *fixture, router *serving) {
	t.Helper()
	router = &serving{}
	host, events := &plugintest.Host{}, &eventLog{}
	begin := func() *fixture {
		f := &fixture{host: host, events: events}
		f.instance = plugintest.Start(t, plugin(o, executor.Serve), plugintest.Options{Host: host, Seams: func(r grpc.ServiceRegistrar) {
			eventsv1.RegisterEventsServer(r, events)
			bashv1.RegisterBashServer(r, router)
		}})
		f.Client = bash.NewClient(f.instance.Conn())
		return f
	}
	old, successor = begin(), begin()
	router.now = bashv1.NewBashClient(successor.instance.Conn())
	return old, successor, router
}

// listed are the ids of the tasks that an executor lists; given are those of them that have ended.
func listed(t *testing.T, f *fixture) (ids, given []string) {
	t.Helper()
	tasks, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		ids = append(ids, task.GetId())
		if task.GetStatus().GetState() != bashv1.TaskStatus_STATE_RUNNING {
			given = append(given, task.GetId())
		}
	}
	return ids, given
}

func given(t *testing.T, f *fixture) []string {
	t.Helper()
	_, given := listed(t, f)
	return given
}

func TestTheSuccessorGetsTheTasksThatHaveEnded(t *testing.T) {
	old, successor, router := succession(t, executor.Options{OutputLimit: 1000})
	ended := old.task(t, "s-1", "seq 1 1000; echo bad >&2; exit 3")
	running := old.task(t, "s-1", "echo before; sleep 60")
	read := old.task(t, "", "echo read")
	eventually(t, "the ends told", func() bool { return len(old.events.all()) == 2 })
	if stdout, _, _ := old.readAll(t, read, ""); stdout != "read\n" {
		t.Errorf("got %q", stdout)
	}
	own := successor.task(t, "s-1", "sleep 60")
	old.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	eventually(t, "the tasks given away", func() bool { return len(given(t, successor)) >= 2 })
	if have, _ := listed(t, successor); !slices.Equal(have, []string{ended, running, read, own}) {
		t.Errorf("the successor has %v", have)
	}
	for name, f := range map[string]*fixture{"there": successor, "by the old way": old} {
		if _, err := f.Read(t.Context(), ended, "s-2"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: another session got %v", name, err)
		}
		if already, err := f.Kill(t.Context(), ended, "s-1"); err != nil || !already {
			t.Errorf("%s: %v, %v", name, already, err)
		}
	}

	// A call that was on its way to the old one.
	r, err := old.Read(t.Context(), ended, "s-1")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(r.GetStdout()), "\n999\n1000\n") || len(r.GetStdout()) > 1000 || string(r.GetStderr()) != "bad\n" || !r.GetDropped() ||
		r.GetStatus().GetState() != bashv1.TaskStatus_STATE_COMPLETED || r.GetStatus().GetExit().GetCode() != 3 || len(r.GetSpillPaths()) != 1 {
		t.Fatalf("got %v", r)
	}
	if !slices.Equal(router.claimed, []string{ended}) {
		t.Errorf("it carried the claims %v", router.claimed)
	}
	if r, err := successor.Read(t.Context(), ended, "s-1"); err != nil || len(r.GetStdout())+len(r.GetStderr()) > 0 || r.GetDropped() {
		t.Errorf("it came again: %v %v", r, err)
	}
	if r, err := successor.Read(t.Context(), read, ""); err != nil || len(r.GetStdout()) > 0 {
		t.Errorf("it came again: %v %v", r, err)
	}

	// What ends later follows.
	if already, err := old.Kill(t.Context(), running, "s-1"); err != nil || already {
		t.Errorf("%v, %v", already, err)
	}
	eventually(t, "the last one given away", func() bool { return slices.Contains(given(t, successor), running) })
	if r, err := successor.Read(t.Context(), running, "s-1"); err != nil || r.GetStatus().GetExit().GetSignal() != "SIGTERM" {
		t.Errorf("got %v, %v", r, err)
	}
	ends := len(old.events.all())
	old.instance.Stop()
	spilled, err := os.ReadFile(r.GetSpillPaths()[0])
	if err != nil || strings.Count(string(spilled), "\n") != 1000 {
		t.Errorf("the file of the whole output has %d bytes: %v", len(spilled), err)
	}
	if now := len(old.events.all()); now != ends {
		t.Errorf("%d ends were told, %d before", now, ends)
	}
	successor.instance.Stop()
	if _, err := os.Stat(r.GetSpillPaths()[0]); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestThatASpillHasReachedItsLimitIsSaidByWhoeverHasTheTask(t *testing.T) {
	old, successor, _ := succession(t, executor.Options{OutputLimit: 1000, SpillLimit: 1500})
	said := func(r *bashv1.ReadResponse, err error) {
		t.Helper()
		if err != nil || len(r.GetSpillPaths()) != 2 || !slices.Equal(r.GetSpillCapped(), []bool{false, true}) {
			t.Errorf("got %v, %v", r, err)
		}
	}
	const command = "head -c 1500 /dev/zero; head -c 1501 /dev/zero >&2"
	here, moved := old.task(t, "s-1", command), old.task(t, "s-1", command)
	eventually(t, "the ends told", func() bool { return len(old.events.all()) == 2 })
	said(old.Read(t.Context(), here, "s-1"))
	old.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	eventually(t, "the tasks given away", func() bool { return slices.Contains(given(t, successor), moved) })
	said(successor.Read(t.Context(), moved, "s-1"))
}

func TestATaskIsTakenBackFromASuccessorThatFails(t *testing.T) {
	old, successor, _ := succession(t, executor.Options{})
	ended := old.task(t, "s-1", "echo out")
	eventually(t, "its end told", func() bool { return len(old.events.all()) == 1 })
	old.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	eventually(t, "the task given away", func() bool { return len(given(t, successor)) == 1 })
	successor.instance.Stop()
	old.instance.Resume()
	if stdout, _, _ := old.readAll(t, ended, "s-1"); stdout != "out\n" {
		t.Errorf("got %q", stdout)
	}
	if claims := old.host.Claims(); !slices.Equal(claims, []string{ended}) {
		t.Errorf("the claims are %v", claims)
	}
}

func TestATaskThatNobodyTakesIsKeptUntilItIsRead(t *testing.T) {
	for name, refusal := range map[string]error{
		"an executor that knows nothing of it": status.Error(codes.Unimplemented, "unknown method Adopt"),
		"no injection":                         status.Error(codes.PermissionDenied, "its manifest lacks an inject"),
	} {
		t.Run(name, func(t *testing.T) {
			old, _, router := succession(t, executor.Options{})
			router.refuse = refusal
			ended := old.task(t, "", "echo out")
			eventually(t, "its end told", func() bool { return len(old.events.all()) == 1 })
			old.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
			if stdout, _, _ := old.readAll(t, ended, ""); stdout != "out\n" {
				t.Errorf("got %q", stdout)
			}
			eventually(t, "its claim released", func() bool { return len(old.host.Claims()) == 0 })
		})
	}
}

func TestOnlyTasksThatHaveEndedAreAdopted(t *testing.T) {
	f := start(t, executor.Options{})
	client := bashv1.NewBashClient(f.instance.Conn())
	own := f.task(t, "", "true")
	eventually(t, "its end told", func() bool { return len(f.events.all()) == 1 })
	completed := &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_COMPLETED}
	for name, test := range map[string]struct {
		task *bashv1.Task
		want codes.Code
	}{
		"no id":              {&bashv1.Task{Status: completed}, codes.InvalidArgument},
		"without a status":   {&bashv1.Task{Id: "bash-9"}, codes.InvalidArgument},
		"the executor's own": {&bashv1.Task{Id: own, Status: completed}, codes.FailedPrecondition},
	} {
		if _, err := client.Adopt(t.Context(), &bashv1.AdoptRequest{Task: test.task}); status.Code(err) != test.want {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for range 2 { // the answer to the first may have been lost
		if _, err := client.Adopt(t.Context(), &bashv1.AdoptRequest{Task: &bashv1.Task{Id: "bash-9", Status: completed}}); err != nil {
			t.Error(err)
		}
	}
	if have, _ := listed(t, f); len(have) != 2 {
		t.Errorf("it has %v", have)
	}
}

// The old executor ends as soon as the last claim is not its own: its call then ends before the new one has heard that it has the claim.
func TestATaskWhoseGiverEndsAtOnceIsAdopted(t *testing.T) {
	f := start(t, executor.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan struct{})
	f.host.TookOver = func(string) {
		cancel()
		<-returned
	}
	task := &bashv1.Task{Id: "bash-9", SessionId: "s-1", Status: &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_COMPLETED}}
	_, err := bashv1.NewBashClient(f.instance.Conn()).Adopt(ctx, &bashv1.AdoptRequest{
		Task: task, Stdout: &bashv1.AdoptRequest_Output{Data: []byte("out")},
	})
	close(returned)
	if status.Code(err) != codes.Canceled {
		t.Errorf("the giver's call ended with %v", err)
	}
	if r, err := f.Read(t.Context(), "bash-9", "s-1"); err != nil || string(r.GetStdout()) != "out" {
		t.Errorf("got %v, %v", r, err)
	}
	if claims := f.host.Claims(); !slices.Equal(claims, []string{"bash-9"}) {
		t.Errorf("the claims are %v", claims)
	}
}
