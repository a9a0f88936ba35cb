package toolbash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

const bashDescription = `Runs a command with bash and returns what it printed and how it ended.

- Each call is a new, non-interactive shell: directories and variables do not carry over between calls, standard input is empty, and there is no terminal. Pass workdir instead of using cd; give programs the flags that keep them from asking.
- stdout comes first, then stderr after a line [stderr]. A non-zero exit code, a signal or a timeout is reported in a last line in brackets; no such line means exit code 0. Long output is cut to its end, and the result names the file that has all of it.
- A command that runs longer than its time limit is killed with everything it started. For servers, watchers and long builds set run_in_background: the call returns a task id at once. Read the task's output with bash_output, end it with bash_kill; when it ends you are told.
- Quote paths that contain spaces. Chain dependent commands with &&; make independent calls side by side.`

type bashArgs struct {
	Command         string   `json:"command" jsonschema:"The command, run as it is by bash -c."`
	Description     string   `json:"description" jsonschema:"What the command does, in 5 to 10 words and active voice, e.g. \"List the files of the project\". It is shown to people and has no effect on the execution."`
	TimeoutMs       *float64 `json:"timeoutMs,omitempty" jsonschema:"The time limit in milliseconds. Without effect on background tasks."`
	Workdir         string   `json:"workdir,omitempty" jsonschema:"The working directory: absolute, or relative to that of the session, which is the default."`
	RunInBackground bool     `json:"run_in_background,omitempty" jsonschema:"Start the command as a background task and return its id at once."`
}

func (s shell) bashTool() tool.Tool {
	return tool.New("bash", bashDescription, s.runBash, tool.Present(s.presentBash), tool.Describe[bashArgs](s.describeBash))
}

// check returns the first value that the schema allows and bash does not.
func (a bashArgs) check() error {
	switch {
	case !isText(a.Command):
		return tool.InvalidArguments("invalid command: expected a non-empty string")
	case !isText(a.Description):
		return tool.InvalidArguments("invalid description: expected a non-empty string")
	case a.TimeoutMs != nil && *a.TimeoutMs <= 0:
		return tool.InvalidArguments("invalid timeoutMs: expected a positive number, got %s", strconv.FormatFloat(*a.TimeoutMs, 'f', -1, 64))
	}
	return nil
}

func isText(s string) bool { return strings.TrimSpace(s) != "" && !strings.Contains(s, "\x00") }

// timeout is the time limit in whole milliseconds; 0: the executor's default.
func (a bashArgs) timeout() int64 {
	if a.TimeoutMs == nil {
		return 0
	}
	return int64(math.Ceil(min(*a.TimeoutMs, math.MaxInt32)))
}

// describeBash names the executor's limits. Without an answer the description lacks them.
func (s shell) describeBash(ctx context.Context, schema *jsonschema.Schema) {
	limits, err := s.bash.Defaults(ctx)
	if err != nil {
		return
	}
	schema.Properties["timeoutMs"].Description = fmt.Sprintf(
		"The time limit in milliseconds. Default: %d, maximum: %d. Without effect on background tasks.", limits.GetTimeoutMs(), limits.GetMaxTimeoutMs())
}

func (s shell) presentBash(ctx context.Context, call *tool.Call, args bashArgs) (tool.Presentation, error) {
	if err := args.check(); err != nil {
		return tool.Presentation{}, err
	}
	p := tool.Presentation{Title: args.Description + " — " + args.Command, Kind: tool.KindExecute, RawInput: args.Command}
	if args.RunInBackground {
		return p, nil
	}
	var err error
	p.TerminalCwd, err = s.directory(ctx, args.Workdir, call.Cwd)
	return p, err
}

// directory is where a command runs.
func (s shell) directory(ctx context.Context, workdir, sessionCwd string) (string, error) {
	if filepath.IsAbs(workdir) {
		return workdir, nil
	}
	if sessionCwd == "" {
		defaults, err := s.bash.Defaults(ctx)
		if err != nil {
			return "", err
		}
		sessionCwd = defaults.GetCwd()
	}
	if workdir == "" {
		return sessionCwd, nil
	}
	return filepath.Join(sessionCwd, workdir), nil
}

var errAborted = errors.New("command aborted")

func (s shell) runBash(ctx context.Context, call *tool.Call, args bashArgs) (tool.Result, error) {
	if err := args.check(); err != nil {
		return tool.Result{}, err
	}
	if ctx.Err() != nil {
		return tool.Result{}, fmt.Errorf("aborted before spawn: %w", context.Cause(ctx))
	}
	command := &bashv1.Command{Command: args.Command, Workdir: args.Workdir, SessionId: call.SessionID, SessionCwd: call.Cwd}
	if args.RunInBackground {
		return s.start(ctx, command)
	}
	view := &view{call: call}
	result, err := s.bash.Run(ctx, &bashv1.RunRequest_Run{Command: command, TimeoutMs: args.timeout()}, view.show)
	if err != nil && ctx.Err() != nil && status.Code(err) == codes.Canceled {
		return tool.Result{}, errAborted
	}
	if err != nil {
		return tool.Result{}, err
	}
	if result.GetAborted() && result.GetExit() == nil {
		return tool.Result{}, fmt.Errorf("aborted before spawn: %w", context.Cause(ctx))
	}
	var exit *tool.Exit
	if e := result.GetExit(); e != nil {
		exit = &tool.Exit{Code: int(e.GetCode()), Signal: e.GetSignal()}
	}
	if result.GetAborted() {
		return tool.Result{Exit: exit}, errAborted
	}
	view.end(result)
	text := foregroundText(result)
	return tool.Result{Text: text, Display: fenced(text), Exit: exit}, nil
}

// view is the call's terminal. It is owned by the goroutine that runs the call.
type view struct {
	call    *tool.Call
	midLine bool // the last line has not ended
}

// show appends output. A viewer that is gone does not stop the command.
func (v *view) show(p []byte) {
	v.midLine = p[len(p)-1] != '\n'
	_, _ = v.call.Write(p)
}

// end shows the notes; how the command ended is shown by the terminal itself.
func (v *view) end(r *bashv1.Result) {
	notes := strings.Join(terminalNotes(r), "\n")
	if notes != "" && v.midLine {
		notes = "\n" + notes
	}
	v.call.Output(notes)
}
