package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/stdio"
)

func newCheck(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check a configuration: start, describe, plan, stop",
		Long: `Check starts the plugin of each row, asks for its manifest, plans, prints the plan and stops everything.
Nothing is activated. It exits with 1 when a row cannot become active, and prints every reason with file and line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.host(cmd.ErrOrStderr(), hclog.Off)
			if err != nil {
				return err
			}
			options.Stdio = stdio.New(io.Discard)
			report, err := host.Check(options)
			if err != nil {
				return err
			}
			printPlan(cmd.OutOrStdout(), report)
			if report.Err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), report.Err)
				return exitCode(1)
			}
			return nil
		},
	}
}

func printPlan(w io.Writer, report *host.Report) {
	place := map[string]int{}
	for i, id := range report.Order {
		place[id] = i + 1
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tPLUGIN\tPLAN\tPROVIDES\tNEEDS")
	for _, row := range report.Rows {
		what := row.Phase
		if n := place[row.ID]; n > 0 {
			what = fmt.Sprintf("activate, %d.", n)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", row.ID, dash(row.Plugin), what, list(row.Provides), list(row.Injects))
	}
	t.Flush()
}

func list(names []string) string { return dash(strings.Join(names, ", ")) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
