package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/control"
)

func newReload(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload [ROW]",
		Short: "Replace the instance of a row, or load the configuration again",
		Long: `Reload replaces the instance of a row of a running host by one of the row's program as it is now, while calls to it are held. Without
a row the host reads its configuration again and touches only the rows that changed. When something is wrong it says what, exits with
1, and all is as before.` + whichHost,
		Example: `  dsh reload bash
  dsh reload`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeRow,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
				client := control.NewClient(conn)
				if len(args) == 0 {
					change, err := client.ReloadConfig(ctx)
					if err != nil {
						return err
					}
					return printChange(cmd.OutOrStdout(), change, asJSON)
				}
				s, err := client.Status(ctx)
				if err == nil {
					err = checkRow(s, args[0])
				}
				if err != nil {
					return err
				}
				r, err := client.Reload(ctx, args[0])
				if err != nil {
					return err
				}
				return printReload(cmd.OutOrStdout(), r, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the outcome as one line of JSON")
	addAttach(cmd, o)
	return cmd
}

func printReload(w io.Writer, r control.Reload, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Row        string  `json:"row"`
			Generation int     `json:"generation"`
			StartedMs  float64 `json:"startedMs"`
			HeldMs     float64 `json:"heldMs"`
		}{r.Row, r.Generation, milliseconds(r.Started), milliseconds(r.Held)})
	}
	if r.Started == 0 {
		_, err := fmt.Fprintf(w, "%s: was not active, and is started anew\n", r.Row)
		return err
	}
	_, err := fmt.Fprintf(w, "%s: generation %d, started in %.0f ms, calls held for %.1f ms\n", r.Row, r.Generation,
		milliseconds(r.Started), milliseconds(r.Held))
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func printChange(w io.Writer, c control.Change, asJSON bool) error {
	if asJSON {
		return printJSON(w, c)
	}
	var parts []string
	for _, part := range []struct {
		what string
		rows []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(part.rows) > 0 {
			parts = append(parts, part.what+" "+strings.Join(part.rows, ", "))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing changed"}
	}
	_, err := fmt.Fprintln(w, "configuration loaded: "+strings.Join(parts, "; "))
	return err
}
