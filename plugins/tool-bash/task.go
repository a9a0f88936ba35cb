package toolbash

import (
	"context"
	"fmt"
	"time"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

const (
	outputDescription = `Returns what a background task of bash has printed since the last bash_output for it, and whether it still runs. ` +
		`It does not wait: when a task ends you are told, so do not poll in a loop.`
	killDescription = `Ends a background task of bash, everything it started included. What it printed can still be read with bash_output.`
)

type taskArgs struct {
	TaskID string `json:"task_id" jsonschema:"The id that bash returned when it started the task, e.g. bash-1."`
}

func (a taskArgs) check() error {
	if a.TaskID == "" {
		return tool.InvalidArguments(`invalid task_id: expected a string, got ""`)
	}
	return nil
}

func (s shell) outputTool() tool.Tool {
	return tool.New("bash_output", outputDescription, s.readTask, tool.Present(presentTask("Read output from background task ")))
}

func (s shell) killTool() tool.Tool {
	return tool.New("bash_kill", killDescription, s.killTask, tool.Present(presentTask("Kill background task ")))
}

func presentTask(title string) func(context.Context, *tool.Call, taskArgs) (tool.Presentation, error) {
	return func(_ context.Context, _ *tool.Call, args taskArgs) (tool.Presentation, error) {
		return tool.Presentation{Title: title + args.TaskID, Kind: tool.KindExecute, RawInput: args.TaskID}, args.check()
	}
}

func (s shell) start(ctx context.Context, command *bashv1.Command) (tool.Result, error) {
	ctx, cancel := settle(ctx)
	defer cancel()
	id, err := s.bash.Start(ctx, command)
	if err != nil {
		return tool.Result{}, err
	}
	return tool.Text("started background task " + id), nil
}

func (s shell) readTask(ctx context.Context, call *tool.Call, args taskArgs) (tool.Result, error) {
	if err := args.check(); err != nil {
		return tool.Result{}, err
	}
	if !isClaim(args.TaskID) {
		return tool.Result{}, unknownTask(args.TaskID)
	}
	ctx, cancel := settle(ctx)
	defer cancel()
	read, err := s.bash.Read(ctx, args.TaskID, call.SessionID)
	if err != nil {
		return tool.Result{}, err
	}
	text := backgroundText(read)
	return tool.Result{Text: text, Display: fenced(text)}, nil
}

func (s shell) killTask(ctx context.Context, call *tool.Call, args taskArgs) (tool.Result, error) {
	if err := args.check(); err != nil {
		return tool.Result{}, err
	}
	if !isClaim(args.TaskID) {
		return tool.Result{}, unknownTask(args.TaskID)
	}
	ctx, cancel := settle(ctx)
	defer cancel()
	over, err := s.bash.Kill(ctx, args.TaskID, call.SessionID)
	switch {
	case err != nil:
		return tool.Result{}, err
	case over:
		return tool.Text(fmt.Sprintf("task %s had already finished", args.TaskID)), nil
	}
	return tool.Text("killed background task " + args.TaskID), nil
}

// settleLimit bounds the calls that answer at once.
const settleLimit = 30 * time.Second

// settle frees a call from cancellation. The executor answers at once, and its answer must not get lost: a started task would
// run unknown, and output that was read would have no reader.
func settle(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
}

// isClaim tells whether an id can travel as the key of a claim; what cannot was never allotted.
func isClaim(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return len(id) <= 100
}

func unknownTask(id string) error { return fmt.Errorf("unknown bash task %q", id) }
