package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
)

func newTasks(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "Show the background tasks of a running host",
		Long: `Tasks shows the background commands of the executor of a running host, oldest first, and those that still run in executors that have
been replaced.` + whichHost,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
				s, err := control.NewClient(conn).Status(ctx)
				if err != nil {
					return err
				}
				tasks, err := listTasks(ctx, conn, s.Rows)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), tasks)
				}
				printTasks(cmd.OutOrStdout(), tasks, time.Now())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the tasks as one line of JSON")
	addAttach(cmd, o)
	return cmd
}

// runTask is a task as it is printed.
type runTask struct {
	ID       string    `json:"id"`
	State    string    `json:"state"`
	ExitCode *int      `json:"exitCode,omitempty"`
	Signal   string    `json:"signal,omitempty"`
	Executor string    `json:"executor"` // the row
	Retiring bool      `json:"retiring"` // the executor has been replaced
	PID      int64     `json:"pid,omitempty"`
	Session  string    `json:"session,omitempty"`
	Command  string    `json:"command"`
	Cwd      string    `json:"cwd"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
}

// listTasks asks the active executor, and each one that is kept by a task which the active one does not know of.
func listTasks(ctx context.Context, conn grpc.ClientConnInterface, rows []control.Row) ([]runTask, error) {
	client := bash.NewClient(conn)
	tasks := []runTask{}
	known, keeps := map[string]bool{}, map[string]string{} // the row of the executor that a task keeps
	for _, r := range rows {
		for _, i := range r.Retiring {
			for kept := range strings.SplitSeq(i.KeptBy, ", ") {
				if strings.HasPrefix(kept, bash.TaskPrefix+"-") {
					keeps[kept] = r.ID
				}
			}
		}
	}
	ask := func(ctx context.Context, executor string, retiring bool) error {
		list, err := client.List(ctx)
		if err != nil {
			return fmt.Errorf("list the tasks of row %q: %s", executor, status.Convert(err).Message())
		}
		for _, t := range list {
			if !known[t.GetId()] {
				known[t.GetId()] = true
				row, elsewhere := keeps[t.GetId()]
				tasks = append(tasks, newRunTask(t, cmp.Or(row, executor), retiring || elsewhere))
			}
		}
		return nil
	}
	var executor bool
	for _, r := range rows {
		if r.Phase == "active" && slices.Contains(r.Provides, bash.Seam.Name) {
			executor = true
			if err := ask(ctx, r.ID, false); err != nil {
				return nil, err
			}
		}
	}
	for kept, row := range keeps {
		if !known[kept] {
			executor = true
			_ = ask(sdk.WithClaim(ctx, kept), row, true) // it may have ended, and its executor with it
		}
	}
	if !executor {
		return nil, errors.New("no active row provides seam \"bash\": there is no executor, and there are no tasks")
	}
	slices.SortStableFunc(tasks, func(a, b runTask) int { return a.Started.Compare(b.Started) })
	return tasks, nil
}

func newRunTask(t *bashv1.Task, executor string, retiring bool) runTask {
	task := runTask{
		ID: t.GetId(), State: strings.ToLower(strings.TrimPrefix(t.GetStatus().GetState().String(), "STATE_")), Executor: executor,
		Retiring: retiring, PID: t.GetPid(), Session: t.GetSessionId(), Command: t.GetCommand(), Cwd: t.GetCwd(),
		Started: t.GetStarted().AsTime(), Signal: t.GetStatus().GetExit().GetSignal(),
	}
	if exit := t.GetStatus().GetExit(); exit != nil && exit.GetSignal() == "" {
		code := int(exit.GetCode())
		task.ExitCode = &code
	}
	if t.GetEnded() != nil {
		task.Ended = t.GetEnded().AsTime()
	}
	return task
}

func printTasks(w io.Writer, tasks []runTask, now time.Time) {
	if len(tasks) == 0 {
		fmt.Fprintln(w, "no tasks")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TASK\tSTATE\tRAN\tPID\tEXECUTOR\tSESSION\tCOMMAND")
	for _, task := range tasks {
		state := task.State
		switch {
		case task.ExitCode != nil:
			state += fmt.Sprintf(", exit code %d", *task.ExitCode)
		case task.Signal != "":
			state += ", " + task.Signal
		}
		end := now
		if !task.Ended.IsZero() {
			end = task.Ended
		}
		executor := task.Executor
		if task.Retiring {
			executor += " (retiring)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", task.ID, state, age(end.Sub(task.Started)), number(int(task.PID)), executor,
			dash(task.Session), oneLine(task.Command, 60))
	}
	t.Flush()
}
