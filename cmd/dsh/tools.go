package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

func newTools(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Show the tools that a running host offers to a model",
		Long: `Tools shows the tools that a running host offers to a model, with the beginning of what the model reads about each, and the modes in
which tool calls can be ruled, the default first.` + whichHost,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
				tools, modes, err := tool.NewClient(conn).List(ctx)
				if err != nil {
					return fmt.Errorf("list the tools: %s", status.Convert(err).Message())
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), toolsJSON(tools, modes))
				}
				t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(t, "TOOL\tDESCRIPTION")
				for _, l := range tools {
					fmt.Fprintf(t, "%s\t%s\n", l.GetName(), oneLine(l.GetDescription(), 100))
				}
				t.Flush()
				var names []string
				for _, m := range modes {
					names = append(names, m.GetId())
				}
				if len(names) > 0 {
					fmt.Fprintf(cmd.OutOrStdout(), "\nmodes: %s\n", strings.Join(names, ", "))
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the tools, with the schemas of their arguments, and the modes as one line of JSON")
	addAttach(cmd, o)
	return cmd
}

type jsonTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

type jsonMode struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

func toolsJSON(tools []*toolsv1.Tool, modes []*toolsv1.Mode) any {
	list := struct {
		Tools []jsonTool `json:"tools"`
		Modes []jsonMode `json:"modes"`
	}{[]jsonTool{}, []jsonMode{}}
	for _, t := range tools {
		list.Tools = append(list.Tools, jsonTool{t.GetName(), t.GetDescription(), json.RawMessage(t.GetInputSchema())})
	}
	for _, m := range modes {
		list.Modes = append(list.Modes, jsonMode{m.GetId(), m.GetName(), m.GetDescription()})
	}
	return list
}
