package toolbash

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	bashlocal "github.com/dsh-go/dsh/plugins/bash-local"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/plugintest"
	"github.com/dsh-go/dsh/sdk/tool"
	"github.com/dsh-go/dsh/sdk/tool/tooltest"
)

func TestThreeToolsInThisOrder(t *testing.T) {
	tools := list(t, start(t, &executor{}))
	type property struct{ Type, Description string }
	type schema struct {
		Type       string
		Properties map[string]property
		Required   []string
	}
	want := []struct {
		name       string
		properties map[string]string
		required   string
	}{
		{"bash", map[string]string{"command": "string", "description": "string", "timeoutMs": "number", "workdir": "string", "run_in_background": "boolean"}, "command description"},
		{"bash_output", map[string]string{"task_id": "string"}, "task_id"},
		{"bash_kill", map[string]string{"task_id": "string"}, "task_id"},
	}
	if len(tools) != len(want) {
		t.Fatalf("%d tools, want %d", len(tools), len(want))
	}
	for i, got := range tools {
		var s schema
		if err := json.Unmarshal([]byte(got.GetInputSchema()), &s); err != nil {
			t.Fatal(err)
		}
		if got.GetName() != want[i].name || got.GetDescription() == "" || s.Type != "object" || strings.Join(s.Required, " ") != want[i].required {
			t.Errorf("tool %d is %v", i, got)
		}
		if len(s.Properties) != len(want[i].properties) {
			t.Errorf("%s has properties %v, want %v", got.GetName(), s.Properties, want[i].properties)
		}
		for name, kind := range want[i].properties {
			if p := s.Properties[name]; p.Type != kind || p.Description == "" {
				t.Errorf("%s: property %s is %+v, want a described %s", got.GetName(), name, p, kind)
			}
		}
	}
}

func TestTheDescriptionOfTimeoutMsNamesTheExecutorsLimits(t *testing.T) {
	for name, test := range map[string]struct {
		executor *executor
		want     string
	}{
		"limits": {&executor{}, `"timeoutMs":{"type":"number","description":"The time limit in milliseconds. Default: 120000, maximum: 600000. Without effect on background tasks."}`},
		"an executor that does not tell": {&executor{defaultsErr: status.Error(codes.Unavailable, "gone")},
			`"timeoutMs":{"type":"number","description":"The time limit in milliseconds. Without effect on background tasks."}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := list(t, start(t, test.executor))[0].GetInputSchema(); !strings.Contains(got, test.want) {
				t.Errorf("schema %s\nwant it to contain %s", got, test.want)
			}
		})
	}
}

func TestTheDescriptionOfDescriptionSaysWhomItIsFor(t *testing.T) {
	const want = `"description":{"type":"string","description":"What the command does, in 5 to 10 words and active voice, ` +
		`e.g. \"List the files of the project\". It is shown to people and has no effect on the execution."}`
	if got := list(t, start(t, &executor{}))[0].GetInputSchema(); !strings.Contains(got, want) {
		t.Errorf("schema %s\nwant it to contain %s", got, want)
	}
}

func TestWrongArgumentsOfBash(t *testing.T) {
	for name, test := range map[string]struct{ arguments, want string }{
		"all violations at once":        {`{"timeoutMs":"5","description":"d"}`, `Error: invalid arguments: missing required property "command"; "timeoutMs" must be a number`},
		"an empty argument string":      {``, `Error: invalid arguments: missing required property "command"; missing required property "description"`},
		"no object":                     {`[]`, `Error: invalid arguments: "arguments" must be an object`},
		"an empty command":              {`{"command":"","description":"d"}`, `Error: invalid command: expected a non-empty string`},
		"a blank command":               {`{"command":" \t\n","description":""}`, `Error: invalid command: expected a non-empty string`},
		"a command with a NUL byte":     {`{"command":"echo a\u0000b","description":"d"}`, `Error: invalid command: expected a non-empty string`},
		"an empty description":          {`{"command":"c","description":"","timeoutMs":0}`, `Error: invalid description: expected a non-empty string`},
		"a blank description":           {`{"command":"c","description":"  "}`, `Error: invalid description: expected a non-empty string`},
		"a description with a NUL byte": {`{"command":"c","description":"a\u0000"}`, `Error: invalid description: expected a non-empty string`},
		"a limit of zero":               {`{"command":"c","description":"d","timeoutMs":0}`, `Error: invalid timeoutMs: expected a positive number, got 0`},
		"a limit below zero":            {`{"command":"c","description":"d","timeoutMs":-1.5}`, `Error: invalid timeoutMs: expected a positive number, got -1.5`},
		"a limit far below zero":        {`{"command":"c","description":"d","timeoutMs":-1e7}`, `Error: invalid timeoutMs: expected a positive number, got -10000000`},
		"a limit of null":               {`{"command":"c","description":"d","timeoutMs":null}`, `Error: invalid arguments: "timeoutMs" must be a number`},
	} {
		t.Run(name, func(t *testing.T) {
			e := &executor{}
			got := tooltest.Execute(t, start(t, e), &toolsv1.Call{Name: "bash", Arguments: test.arguments})
			wantResult(t, got.Result, argsError(test.want))
			if e.asked() != 0 {
				t.Error("something was executed")
			}
			if p := got.Presentation; p.GetTitle() != "bash" || p.GetKind() != toolsv1.Presentation_KIND_EXECUTE || p.GetTerminal() != nil {
				t.Errorf("presentation %v, want the generic one", p)
			}
		})
	}
}

func TestTheExecutorGetsTheCommandAsItIs(t *testing.T) {
	for name, test := range map[string]struct {
		arguments object
		want      *bashv1.RunRequest_Run
	}{
		"a command":  {command("cat <<'E'\nx\nE"), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "cat <<'E'\nx\nE", SessionId: "s1", SessionCwd: "/home/ann"}}},
		"its limit":  {command("c", object{"timeoutMs": 500}), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "c", SessionId: "s1", SessionCwd: "/home/ann"}, TimeoutMs: 500}},
		"a fraction": {command("c", object{"timeoutMs": 0.25}), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "c", SessionId: "s1", SessionCwd: "/home/ann"}, TimeoutMs: 1}},
		"a limit for the executor to clamp": {command("c", object{"timeoutMs": 1e30}),
			&bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "c", SessionId: "s1", SessionCwd: "/home/ann"}, TimeoutMs: 1<<31 - 1}},
		"its directory": {command("c", object{"workdir": "sub/dir"}),
			&bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "c", Workdir: "sub/dir", SessionId: "s1", SessionCwd: "/home/ann"}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &executor{run: ends(exit0("ok"))}
			tooltest.Execute(t, start(t, e), bashCall(t, "bash", test.arguments))
			if len(e.ran) != 1 || !proto.Equal(e.ran[0], test.want) {
				t.Errorf("the executor got %v, want %v", e.ran, test.want)
			}
		})
	}
}

func TestAForegroundCommandIsATerminal(t *testing.T) {
	for name, test := range map[string]struct {
		workdir, sessionCwd, want string
	}{
		"in the session's directory":                 {"", "/home/ann", "/home/ann"},
		"in an absolute directory":                   {"/tmp", "/home/ann", "/tmp"},
		"in a directory below the session's":         {"sub", "/home/ann", "/home/ann/sub"},
		"without a session":                          {"", "", "/srv/host"},
		"without a session, in a relative directory": {"sub", "", "/srv/host/sub"},
	} {
		t.Run(name, func(t *testing.T) {
			call := bashCall(t, "bash", command("make <all> && echo é", object{"workdir": test.workdir}))
			call.SessionCwd = test.sessionCwd
			want := &toolsv1.Presentation{
				Title: "Do it — make <all> && echo é", Kind: toolsv1.Presentation_KIND_EXECUTE, RawInput: `"make <all> && echo é"`,
				Terminal: &toolsv1.Terminal{Cwd: test.want},
			}
			got := tooltest.Execute(t, start(t, &executor{run: ends(exit0("ok"))}), call)
			if !proto.Equal(got.Presentation, want) {
				t.Errorf("presentation\n%v, want\n%v", got.Presentation, want)
			}
		})
	}
}

func TestAForegroundResult(t *testing.T) {
	for name, test := range map[string]struct {
		run      func(runStream) error
		terminal string
		want     *toolsv1.Result
	}{
		"a command that works": {ends(exit0("hi\n"), "h", "i\n"), "hi\n",
			&toolsv1.Result{Content: content("hi\n"), Display: content("```console\nhi\n```"), Exit: &toolsv1.Exit{}}},
		"an exit code is reported, not an error, and the terminal shows it by itself": {
			ends(&bashv1.Result{Stdout: &bashv1.Stream{Data: []byte("out")}, Exit: &bashv1.Exit{Code: 5}}, "out"), "out",
			&toolsv1.Result{Content: content("out\n[exit code: 5]"), Display: content("```console\nout\n[exit code: 5]\n```"), Exit: &toolsv1.Exit{Code: 5}}},
		"a signal is reported, not an error": {ends(&bashv1.Result{Exit: &bashv1.Exit{Signal: "SIGKILL"}}), "",
			&toolsv1.Result{Content: content("(no output)\n[killed by signal: SIGKILL]"), Display: content("```console\n(no output)\n[killed by signal: SIGKILL]\n```"), Exit: &toolsv1.Exit{Signal: "SIGKILL"}}},
		"the terminal ends with the notes on lines of their own": {
			ends(&bashv1.Result{Stdout: &bashv1.Stream{Data: []byte("il"), Truncated: true, SpillPath: "/s/1"}, Exit: &bashv1.Exit{Signal: "SIGTERM"},
				TimedOut: true, TimeoutMs: 1000, Notes: []string{"[network was off]"}}, "tail"),
			"tail\n[output truncated; full output: /s/1]\n[timed out after 1000ms]\n[network was off]",
			&toolsv1.Result{
				Content: content("il\n[output truncated; full output: /s/1]\n[timed out after 1000ms]\n[network was off]\n[killed by signal: SIGTERM]"),
				Display: content("```console\nil\n[output truncated; full output: /s/1]\n[timed out after 1000ms]\n[network was off]\n[killed by signal: SIGTERM]\n```"),
				Exit:    &toolsv1.Exit{Signal: "SIGTERM"},
			}},
		"the terminal has no empty line before the notes": {ends(&bashv1.Result{TimedOut: true, TimeoutMs: 5, Exit: &bashv1.Exit{}}, "a\n"), "a\n[timed out after 5ms]",
			&toolsv1.Result{Content: content("(no output)\n[timed out after 5ms]"), Display: content("```console\n(no output)\n[timed out after 5ms]\n```"), Exit: &toolsv1.Exit{}}},
		"bytes that are no UTF-8": {ends(exit0("a\xff\xe2\x82"), "a\xff", "\xe2\x82"), "a\uFFFD\uFFFD",
			&toolsv1.Result{Content: content("a\uFFFD\uFFFD"), Display: content("```console\na\uFFFD\uFFFD\n```"), Exit: &toolsv1.Exit{}}},
		"a missing directory is an error": {fails(codes.FailedPrecondition, "working directory does not exist: /tmp/gone"), "",
			toolError("Error: working directory does not exist: /tmp/gone")},
		"an executor that crashes": {fails(codes.Unavailable, `plugin "bash" was killed`), "", toolError(`Error: plugin "bash" was killed`)},
	} {
		t.Run(name, func(t *testing.T) {
			got := tooltest.Execute(t, start(t, &executor{run: test.run}), bashCall(t, "bash", command("c")))
			wantResult(t, got.Result, test.want)
			if got.Output != test.terminal {
				t.Errorf("the terminal shows %q, want %q", got.Output, test.terminal)
			}
		})
	}
}

func TestAMissingShellIsAnErrorInTheExecutorsWords(t *testing.T) {
	real := plugintest.Start(t, bashlocal.Plugin(), plugintest.Options{Config: object{"shell": "no-such-shell"}})
	e := &executor{run: func(stream runStream) error {
		ran, err := bashv1.NewBashClient(real.Conn()).Run(stream.Context())
		if err != nil {
			return err
		}
		if err := ran.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "true"}}}}); err != nil {
			return err
		}
		_, err = ran.Recv()
		return err
	}}
	got := tooltest.Execute(t, start(t, e), bashCall(t, "bash", command("true")))
	wantResult(t, got.Result, toolError(`Error: shell not found: "no-such-shell": executable file not found in $PATH: install bash or set the executor's shell`))
}

func fails(code codes.Code, message string) func(runStream) error {
	return func(runStream) error { return status.Error(code, message) }
}

func TestACancelledCommand(t *testing.T) {
	for name, test := range map[string]struct {
		result *bashv1.Result
		want   *toolsv1.Result
	}{
		"was aborted": {&bashv1.Result{Stdout: &bashv1.Stream{Data: []byte("x")}, Aborted: true, Exit: &bashv1.Exit{Signal: "SIGTERM"}},
			&toolsv1.Result{Content: content("Error: command aborted"), IsError: true, Error: &toolsv1.Error{Name: "ToolError", Code: "TOOL_FAILED"}, Exit: &toolsv1.Exit{Signal: "SIGTERM"}}},
		"was never spawned": {&bashv1.Result{Aborted: true}, toolError("Error: aborted before spawn: the call was cancelled")},
		"ended first":       {exit0("x"), &toolsv1.Result{Content: content("x"), Display: content("```console\nx\n```"), Exit: &toolsv1.Exit{}}},
	} {
		t.Run(name, func(t *testing.T) {
			running := make(chan struct{})
			provider := start(t, &executor{run: func(stream runStream) error {
				close(running)
				req, err := stream.Recv()
				if err != nil || req.GetCancel() == nil {
					return status.Errorf(codes.Internal, "got %v, %v instead of a cancel", req, err)
				}
				return ends(test.result)(stream)
			}})
			call := tooltest.Begin(t, provider, bashCall(t, "bash", command("c")))
			<-running
			call.Cancel()
			wantResult(t, call.End().Result, test.want)
		})
	}
}

func TestACommandCancelledBeforehandIsNotExecuted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the turn is over"))
	for name, args := range map[string]bashArgs{
		"in the foreground": {Command: "c", Description: "d"},
		"in the background": {Command: "c", Description: "d", RunInBackground: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := shell{}.runBash(ctx, &tool.Call{}, args) // there is no executor to ask
			if want := "aborted before spawn: the turn is over"; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}
