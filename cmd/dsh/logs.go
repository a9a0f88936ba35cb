package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

var logLevels = map[string]controlv1.Level{
	"debug": controlv1.Level_LEVEL_DEBUG, "info": controlv1.Level_LEVEL_INFO,
	"warn": controlv1.Level_LEVEL_WARN, "error": controlv1.Level_LEVEL_ERROR,
}

func newLogs(o *options) *cobra.Command {
	var follow, asJSON bool
	level, tail := "info", 100
	cmd := &cobra.Command{
		Use:   "logs [ROW]",
		Short: "Show what a running host and its plugins log",
		Long: `Logs prints what a running host and its plugins have logged last, or what one row has logged and the host about it. The host keeps
the last 2000 entries from the level debug on, whatever the level of its log on stderr is.` + whichHost,
		Example: `  dsh logs -f
  dsh logs --level debug -n 20 bash`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeRow,
		RunE: func(cmd *cobra.Command, args []string) error {
			lowest, ok := logLevels[level]
			if !ok {
				return fmt.Errorf("--level %q: use debug, info, warn or error", level)
			}
			req := &controlv1.LogsRequest{Tail: int64(tail), Follow: follow, Level: lowest}
			if len(args) > 0 {
				req.Row = args[0]
			}
			return o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
				client := control.NewClient(conn)
				if req.GetRow() != "" {
					s, err := client.Status(ctx)
					if err == nil {
						err = checkRow(s, req.GetRow())
					}
					if err != nil {
						return err
					}
				}
				return client.Logs(ctx, req, func(answer *controlv1.LogsResponse) error {
					if asJSON {
						return printJSON(cmd.OutOrStdout(), jsonEntry(answer))
					}
					_, err := fmt.Fprintln(cmd.OutOrStdout(), entryLine(answer))
					return err
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C or the end of the host")
	cmd.Flags().IntVarP(&tail, "tail", "n", tail, "how `many` of the entries logged before to print, at most")
	cmd.Flags().StringVar(&level, "level", level, "the lowest `level` to print: debug, info, warn or error")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each entry as a line of JSON")
	_ = cmd.RegisterFlagCompletionFunc("level", cobra.FixedCompletions(
		[]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	addAttach(cmd, o)
	return cmd
}

func levelName(l controlv1.Level) string { return strings.TrimPrefix(l.String(), "LEVEL_") }

// entryLine shows an entry to a person.
func entryLine(answer *controlv1.LogsResponse) string {
	if n := answer.GetDropped(); n > 0 {
		return fmt.Sprintf("(%d entries are missing here: they came faster than they were read)", n)
	}
	e := answer.GetEntry()
	source := e.GetSource()
	if source == "" {
		source = "host"
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%s %-5s %s: %s", e.GetTime().AsTime().Local().Format("15:04:05.000"), levelName(e.GetLevel()), source, plain(e.GetMessage()))
	for _, f := range e.GetFields() {
		value := plain(f.GetValue())
		if value == "" || strings.ContainsAny(value, " \t\r\n\"=") {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&line, " %s=%s", f.GetKey(), value)
	}
	return line.String()
}

// jsonEntry is an entry for a program.
func jsonEntry(answer *controlv1.LogsResponse) any {
	if n := answer.GetDropped(); n > 0 {
		return map[string]int64{"dropped": n}
	}
	e := answer.GetEntry()
	fields := map[string]string{}
	for _, f := range e.GetFields() {
		fields[f.GetKey()] = f.GetValue()
	}
	return struct {
		Time    time.Time         `json:"time"`
		Level   string            `json:"level"`
		Source  string            `json:"source"`
		Message string            `json:"message"`
		Fields  map[string]string `json:"fields,omitempty"`
	}{e.GetTime().AsTime(), strings.ToLower(levelName(e.GetLevel())), e.GetSource(), e.GetMessage(), fields}
}
