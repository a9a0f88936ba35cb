package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/control"
)

// watchPause is the time between two looks of ps --watch.
const watchPause = time.Second

func newPs(o *options) *cobra.Command {
	var watch, asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "Show the rows of a running host",
		Long: `Ps shows the rows of a running host in the order of its configuration: the plugin, the generation of the instance, the state and for
how long the row has been in it, the process and its resident memory, how often it was started again after a crash, and what a row
that is not active waits for or failed of. Below a row come the instances that have been replaced but still have work, with what
keeps them.` + whichHost,
		Example: `  dsh ps
  dsh ps --watch
  dsh ps --json | jq '.rows[] | select(.state != "active")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := func(w io.Writer, s control.Status) error {
				printRows(w, s.Rows, time.Now())
				return nil
			}
			if asJSON {
				show = func(w io.Writer, s control.Status) error { return printJSON(w, s) }
			}
			return o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
				client := control.NewClient(conn)
				if watch {
					return watchRows(ctx, client, cmd.OutOrStdout(), show)
				}
				s, err := client.Status(ctx)
				if err != nil {
					return err
				}
				return show(cmd.OutOrStdout(), s)
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show them again every second, until Ctrl-C")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the host and its rows as one line of JSON")
	addAttach(cmd, o)
	return cmd
}

func printRows(w io.Writer, rows []control.Row, now time.Time) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tPLUGIN\tGEN\tSTATE\tFOR\tPID\tRSS\tRESTARTS\tWHY")
	for _, r := range rows {
		since := "-"
		if !r.Since.IsZero() {
			since = age(now.Sub(r.Since))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", r.ID, dash(r.Plugin), r.Generation, r.Phase, since,
			number(r.PID), size(r.RSS), r.Restarts, oneLine(r.Reason, 0))
		for _, i := range r.Retiring {
			why := "about to end"
			if i.KeptBy != "" {
				why = "kept by " + i.KeptBy
			}
			fmt.Fprintf(t, "  %s\t\t%d\tretiring\t\t%s\t%s\t\t%s\n", r.ID, i.Generation, number(i.PID), size(i.RSS), why)
		}
	}
	t.Flush()
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// size is a number of bytes for people.
func size(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// watchRows shows the rows again and again, on a terminal in place.
func watchRows(ctx context.Context, client *control.Client, w io.Writer, show func(io.Writer, control.Status) error) error {
	inPlace := isTerminal(w)
	if inPlace {
		fmt.Fprint(w, "\x1b[2J")
	}
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for {
		s, err := client.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the host is gone: %w", err)
		}
		var text strings.Builder
		if err := show(&text, s); err != nil {
			return err
		}
		if inPlace { // no flicker: each line overwrites the one before
			fmt.Fprint(w, "\x1b[H"+strings.ReplaceAll(text.String(), "\n", "\x1b[K\n")+"\x1b[J")
		} else {
			fmt.Fprint(w, text.String())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
