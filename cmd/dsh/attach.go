package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/control"
)

// socketVariable names the control socket of the host to attach to.
const socketVariable = "DSH_SOCKET"

// whichHost is what the help of commands that need a running host ends with.
const whichHost = `

The host is the one whose control socket --attach or DSH_SOCKET names, else the only one of yours that runs.`

// ownOrRunning is what the help of commands that can do without a running host ends with.
const ownOrRunning = `

With --attach, or when DSH_SOCKET names the control socket of a running host and --config is not given, that host is used instead.`

// addAttach adds the flag that names a running host.
func addAttach(cmd *cobra.Command, o *options) {
	cmd.Flags().StringVar(&o.attach, "attach", "", "the running host: its control `socket`")
	_ = cmd.RegisterFlagCompletionFunc("attach", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return control.Find(os.Getenv), cobra.ShellCompDirectiveNoFileComp
	})
}

// namedSocket is the control socket that a flag or the environment names; empty: none.
func (o *options) namedSocket() string {
	if o.attach != "" {
		return o.attach
	}
	return os.Getenv(socketVariable)
}

// runningSocket is the control socket of the running host.
func (o *options) runningSocket(ctx context.Context) (string, error) {
	if named := o.namedSocket(); named != "" {
		return named, nil
	}
	found := control.Find(os.Getenv)
	switch len(found) {
	case 0:
		return "", errors.New("no dsh is running; start one with `dsh run`")
	case 1:
		return found[0], nil
	}
	var list strings.Builder
	for _, socket := range found {
		fmt.Fprintf(&list, "\n  %s  %s", socket, introduce(ctx, socket))
	}
	return "", fmt.Errorf("%d dsh are running; name the control socket of one with --attach:%s", len(found), &list)
}

// introduceLimit is how long a host may take to say who it is.
const introduceLimit = 2 * time.Second

// introduce says which host it is that listens at a socket.
func introduce(ctx context.Context, socket string) string {
	ctx, cancel := context.WithTimeout(ctx, introduceLimit)
	defer cancel()
	conn, err := control.Dial(socket)
	if err != nil {
		return "(it stops)"
	}
	defer conn.Close()
	s, err := control.NewClient(conn).Status(ctx)
	if err != nil {
		return "(it does not answer)"
	}
	return fmt.Sprintf("pid %d, %s, since %s", s.Host.PID, s.Host.Config, s.Host.Started.Local().Format(time.DateTime))
}

// withRunning does a piece of work with the running host. The context ends with the first signal.
func (o *options) withRunning(work func(ctx context.Context, conn *grpc.ClientConn) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	socket, err := o.runningSocket(ctx)
	if err != nil {
		return err
	}
	conn, err := control.Dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return work(ctx, conn)
}

// checkRow is an error that names the row that may be meant, unless the running host has the row.
func checkRow(s control.Status, id string) error {
	var ids []string
	for _, r := range s.Rows {
		ids = append(ids, r.ID)
	}
	if slices.Contains(ids, id) {
		return nil
	}
	return fmt.Errorf("no row %q%s", id, config.Suggest(id, ids))
}

// completeRow completes the id of a row of the running host.
func (o *options) completeRow(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	if len(args) == 0 {
		_ = o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
			s, err := control.NewClient(conn).Status(ctx)
			for _, r := range s.Rows {
				ids = append(ids, r.ID)
			}
			return err
		})
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// printJSON prints a value in one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	return nil
}

// oneLine is a text without line breaks and what would steer the terminal, cut to a number of characters; 0: not cut.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(plain(text)), " ")
	if runes := []rune(text); limit > 0 && len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// age is a time span for people.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
