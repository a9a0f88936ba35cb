package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/agents"
)

func newSessions(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List, show, export and delete stored sessions",
		Long: `Sessions works on the sessions that the agent of a configuration has stored, also on those that another dsh has open: they are
only read. What another dsh has open cannot be deleted.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newSessionsList(o), newSessionsShow(o), newSessionsExport(o), newSessionsDelete(o))
	return cmd
}

// withAgent runs work with the agent of a host of its own. Errors of the agent are given without the words of gRPC.
func withAgent(o *options, cmd *cobra.Command, work func(context.Context, *agents.Client) error) error {
	return withHost(o, cmd.ErrOrStderr(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
		err := work(ctx, agents.NewClient(conn))
		if s, ok := status.FromError(err); ok && err != nil {
			return errors.New(s.Message())
		}
		return err
	})
}

func newSessionsList(o *options) *cobra.Command {
	var cwd string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the stored sessions, newest first",
		Example: `  dsh sessions list --cwd .`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cwd != "" {
				dir, err := filepath.Abs(cwd)
				if err != nil {
					return fmt.Errorf("--cwd %s: %w", cwd, err)
				}
				cwd = dir
			}
			return withAgent(o, cmd, func(ctx context.Context, client *agents.Client) error {
				show, flush := tabulate(cmd.OutOrStdout())
				if asJSON {
					show, flush = jsonLines(cmd.OutOrStdout()), func() error { return nil }
				}
				if err := listSessions(ctx, client, cwd, show); err != nil {
					return err
				}
				return flush()
			})
		},
	}
	cmd.Flags().StringVar(&cwd, "cwd", "", "only the sessions of this `directory`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func listSessions(ctx context.Context, client *agents.Client, cwd string, show func(agents.SessionInfo) error) error {
	token := ""
	for {
		page, next, err := client.List(ctx, cwd, token)
		if err != nil {
			return err
		}
		for _, s := range page {
			if err := show(s); err != nil {
				return err
			}
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// tabulate shows sessions to people.
func tabulate(w io.Writer) (show func(agents.SessionInfo) error, flush func() error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	heading := "ID\tUPDATED\tTITLE\tDIRECTORY\n"
	return func(s agents.SessionInfo) error {
		_, err := fmt.Fprintf(table, "%s%s\t%s\t%s\t%s\n", heading, s.ID, s.Updated.Local().Format("2006-01-02 15:04"), cell(s.Title), cell(s.Cwd))
		heading = ""
		return err
	}, table.Flush
}

func cell(text string) string { return strings.Join(strings.Fields(plain(text)), " ") }

func jsonLines(w io.Writer) func(agents.SessionInfo) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return func(s agents.SessionInfo) error {
		return encoder.Encode(struct {
			ID      string    `json:"session_id"`
			Cwd     string    `json:"cwd"`
			Title   string    `json:"title,omitempty"`
			Updated time.Time `json:"updated"`
		}{s.ID, s.Cwd, s.Title, s.Updated})
	}
}

func newSessionsShow(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a session as a transcript",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgent(o, cmd, func(ctx context.Context, client *agents.Client) error {
				if asJSON {
					return export(ctx, client, args[0], cmd.OutOrStdout())
				}
				t := newTranscript(cmd.OutOrStdout())
				err := eachLine(ctx, client, args[0], func(line []byte) error {
					event, err := agents.Decode(line)
					if err != nil {
						return err
					}
					return t.event(event)
				})
				if failed := t.flush(); err == nil {
					err = failed
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the events as JSON lines")
	return cmd
}

func newSessionsExport(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "export ID",
		Short: "Print a session's log as it is stored",
		Long: `Export prints the log of a session as it is stored, one event a line (docs/sessions.md). Put as ID.jsonl into another agent's
directory of sessions, it is a session there.`,
		Example: `  dsh sessions export 20270101-120000-k3j9x2m4q7wa > session.jsonl`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgent(o, cmd, func(ctx context.Context, client *agents.Client) error {
				return export(ctx, client, args[0], cmd.OutOrStdout())
			})
		},
	}
}

func export(ctx context.Context, client *agents.Client, id string, w io.Writer) error {
	return eachLine(ctx, client, id, func(line []byte) error {
		_, err := w.Write(append(line, '\n'))
		return err
	})
}

// eachLine hands each event of a stored session to use, as it stands in the log.
func eachLine(ctx context.Context, client *agents.Client, id string, use func([]byte) error) error {
	events, err := client.Subscribe(ctx, id, 0, false)
	for err == nil {
		var line []byte
		if line, err = events.NextLine(); err == nil {
			err = use(line)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func newSessionsDelete(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID...",
		Short: "Delete stored sessions for good",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgent(o, cmd, func(ctx context.Context, client *agents.Client) error {
				for _, id := range args {
					if err := deleteSession(ctx, client, id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// deleteSession refuses an id that is not that of a session: it is mistyped. One that cannot be read can be deleted all the same.
func deleteSession(ctx context.Context, client *agents.Client, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := client.Subscribe(ctx, id, 0, false)
	if err == nil {
		_, err = events.NextLine()
	}
	if isUnknown(err) {
		return err
	}
	return client.Delete(ctx, id)
}
