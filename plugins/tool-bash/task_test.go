package toolbash

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/tool"
	"github.com/dsh-go/dsh/sdk/tool/tooltest"
)

func TestABackgroundStart(t *testing.T) {
	e := &executor{}
	got := tooltest.Execute(t, start(t, e), bashCall(t, "bash", command("sleep 9", object{"run_in_background": true, "workdir": "sub", "timeoutMs": 5})))
	wantResult(t, got.Result, &toolsv1.Result{Content: content("started background task bash-1")})
	want := &bashv1.Command{Command: "sleep 9", Workdir: "sub", SessionId: "s1", SessionCwd: "/home/ann"}
	if len(e.starts) != 1 || !proto.Equal(e.starts[0], want) {
		t.Errorf("the executor got %v, want %v", e.starts, want)
	}
	wantPresentation(t, got, "Do it — sleep 9", `"sleep 9"`)
}

func TestABackgroundStartThatFails(t *testing.T) {
	e := &executor{startErr: status.Error(codes.ResourceExhausted, "too many tasks")}
	got := tooltest.Execute(t, start(t, e), bashCall(t, "bash", command("c", object{"run_in_background": true})))
	wantResult(t, got.Result, toolError("Error: too many tasks"))
}

func TestReadingATask(t *testing.T) {
	e := &executor{read: func() (*bashv1.ReadResponse, error) {
		return &bashv1.ReadResponse{Stdout: []byte("one\n"), Status: &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_RUNNING}}, nil
	}}
	got := tooltest.Execute(t, start(t, e), bashCall(t, "bash_output", object{"task_id": "bash-3"}))
	wantResult(t, got.Result, &toolsv1.Result{Content: content("one\n[status: running]"), Display: content("```console\none\n[status: running]\n```")})
	wantPresentation(t, got, "Read output from background task bash-3", `"bash-3"`)
	if len(e.reads) != 1 || e.reads[0].GetTaskId() != "bash-3" || e.reads[0].GetSessionId() != "s1" {
		t.Errorf("the executor was asked %v", e.reads)
	}
	if len(e.claims) != 1 || e.claims[0] != "bash-3" {
		t.Errorf("the call carried the claims %v", e.claims)
	}
}

func TestKillingATask(t *testing.T) {
	for name, test := range map[string]struct {
		already bool
		want    string
	}{
		"that runs":    {false, "killed background task bash-1"},
		"that is over": {true, "task bash-1 had already finished"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &executor{kill: func() (*bashv1.KillResponse, error) { return &bashv1.KillResponse{AlreadyFinished: test.already}, nil }}
			got := tooltest.Execute(t, start(t, e), bashCall(t, "bash_kill", object{"task_id": "bash-1"}))
			wantResult(t, got.Result, &toolsv1.Result{Content: content(test.want)})
			wantPresentation(t, got, "Kill background task bash-1", `"bash-1"`)
			if len(e.kills) != 1 || e.kills[0].GetTaskId() != "bash-1" || e.kills[0].GetSessionId() != "s1" {
				t.Errorf("the executor was asked %v", e.kills)
			}
			if len(e.claims) != 1 || e.claims[0] != "bash-1" {
				t.Errorf("the call carried the claims %v", e.claims)
			}
		})
	}
}

func TestWhatTheExecutorRefusesIsAnErrorInItsWords(t *testing.T) {
	for name, test := range map[string]struct {
		code    codes.Code
		message string
	}{
		"an unknown task":        {codes.NotFound, `unknown bash task "bash-99"`},
		"another session's task": {codes.PermissionDenied, "task bash-5 belongs to another session"},
		"a task that was lost":   {codes.NotFound, "task bash-3 was lost: plugin bash-local crashed at 12:00:01"},
	} {
		e := &executor{
			read: func() (*bashv1.ReadResponse, error) { return nil, status.Error(test.code, test.message) },
			kill: func() (*bashv1.KillResponse, error) { return nil, status.Error(test.code, test.message) },
		}
		for _, toolName := range []string{"bash_output", "bash_kill"} {
			t.Run(name+", "+toolName, func(t *testing.T) {
				got := tooltest.Execute(t, start(t, e), bashCall(t, toolName, object{"task_id": "bash-5"}))
				wantResult(t, got.Result, toolError("Error: "+test.message))
			})
		}
	}
}

func TestWrongArgumentsOfTheTaskTools(t *testing.T) {
	for name, test := range map[string]struct {
		arguments string
		want      *toolsv1.Result
	}{
		"no id":       {`{}`, argsError(`Error: invalid arguments: missing required property "task_id"`)},
		"a null id":   {`{"task_id":null}`, argsError(`Error: invalid arguments: "task_id" must be a string`)},
		"a number":    {`{"task_id":3}`, argsError(`Error: invalid arguments: "task_id" must be a string`)},
		"an empty id": {`{"task_id":""}`, argsError(`Error: invalid task_id: expected a string, got ""`)},
		// Ids that no call could carry as its claim:
		"a blank id":             {`{"task_id":" "}`, toolError(`Error: unknown bash task " "`)},
		"an id with a newline":   {`{"task_id":"bash-1\n"}`, toolError(`Error: unknown bash task "bash-1\n"`)},
		"an id that is no ASCII": {`{"task_id":"bäsh-1"}`, toolError(`Error: unknown bash task "bäsh-1"`)},
		"an endless id":          {`{"task_id":"` + strings.Repeat("x", 101) + `"}`, toolError(`Error: unknown bash task "` + strings.Repeat("x", 101) + `"`)},
	} {
		for _, toolName := range []string{"bash_output", "bash_kill"} {
			t.Run(name+", "+toolName, func(t *testing.T) {
				e := &executor{}
				got := tooltest.Execute(t, start(t, e), &toolsv1.Call{Name: toolName, Arguments: test.arguments, SessionId: "s1"})
				wantResult(t, got.Result, test.want)
				if e.asked() != 0 {
					t.Error("the executor was asked")
				}
			})
		}
	}
}

// wantPresentation wants a call that is shown without a terminal.
func wantPresentation(t *testing.T, got tooltest.Execution, title, rawInput string) {
	t.Helper()
	want := &toolsv1.Presentation{Title: title, Kind: toolsv1.Presentation_KIND_EXECUTE, RawInput: rawInput}
	if !proto.Equal(got.Presentation, want) {
		t.Errorf("presentation\n%v, want\n%v", got.Presentation, want)
	}
	if got.Output != "" {
		t.Errorf("a terminal shows %q", got.Output)
	}
}

// What a cancelled call has already asked of the executor is answered all the same: the model must learn a task's id, and
// output that was read must not vanish.
func TestACancelledCallStillGetsTheExecutorsAnswer(t *testing.T) {
	e := &executor{
		read: func() (*bashv1.ReadResponse, error) {
			return &bashv1.ReadResponse{Stdout: []byte("one"), Status: &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_RUNNING}}, nil
		},
		kill: func() (*bashv1.KillResponse, error) { return &bashv1.KillResponse{}, nil },
	}
	s := shell{dial(t, e)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for want, call := range map[string]func() (tool.Result, error){
		"started background task bash-1": func() (tool.Result, error) { return s.start(ctx, &bashv1.Command{Command: "c"}) },
		"one\n[status: running]":         func() (tool.Result, error) { return s.readTask(ctx, &tool.Call{}, taskArgs{TaskID: "bash-1"}) },
		"killed background task bash-1":  func() (tool.Result, error) { return s.killTask(ctx, &tool.Call{}, taskArgs{TaskID: "bash-1"}) },
	} {
		if got, err := call(); err != nil || got.Text != want {
			t.Errorf("got %q, %v, want %q", got.Text, err, want)
		}
	}
}

// dial serves an executor without a plugin in between.
func dial(t *testing.T, e *executor) *bash.Client {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	bashv1.RegisterBashServer(server, e)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:///executor", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-serving
	})
	return bash.NewClient(conn)
}
