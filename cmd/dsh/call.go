package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

func newCall(o *options) *cobra.Command {
	var session string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "call TOOL JSON",
		Short: "Call one tool and print its result",
		Long: `Call starts the plugins of a configuration, carries one tool call through the whole pipeline, and stops them. The output
of a command is printed while it runs. It exits with 1 when the tool failed; a command that exits non-zero is no failure of
the tool, and its exit code is printed.` + ownOrRunning,
		Example: `  dsh call bash '{"command":"echo hi; exit 3","description":"Say hi"}'`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cwd, err := workdir()
			if err != nil {
				return err
			}
			call := &toolsv1.Call{CallId: "cli", Name: args[0], Arguments: args[1], SessionId: session, SessionCwd: cwd}
			return withHost(o, cmd.ErrOrStderr(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
				out := &callPrinter{w: cmd.OutOrStdout(), quiet: asJSON}
				result, err := tool.NewClient(conn).Execute(ctx, call, tool.Watch{Output: out.output})
				if err != nil {
					return fmt.Errorf("call %s: %w", call.GetName(), err)
				}
				if asJSON {
					text, err := protojson.Marshal(result)
					if err != nil {
						return fmt.Errorf("print the result: %w", err)
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
				} else {
					out.result(result)
				}
				if result.GetIsError() {
					return exitCode(1)
				}
				return nil
			})
		},
	}
	addAttach(cmd, o)
	cmd.Flags().StringVar(&session, "session", "", "the session on whose behalf the tool runs: its `id`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON when it is there, and nothing before")
	return cmd
}

// callPrinter prints what the terminal of a call shows, and then how it ended.
type callPrinter struct {
	w       io.Writer
	quiet   bool
	printed bool
	midLine bool
}

func (p *callPrinter) output(text string) {
	if p.quiet || text == "" {
		return
	}
	fmt.Fprint(p.w, text)
	p.printed, p.midLine = true, !strings.HasSuffix(text, "\n")
}

// result prints the text that the model reads, or, when the output has been printed already, just the end.
func (p *callPrinter) result(r *toolsv1.Result) {
	if !p.printed || r.GetIsError() {
		for _, c := range r.GetContent() {
			p.line(c.GetText())
		}
		return
	}
	switch exit := r.GetExit(); {
	case exit.GetSignal() != "":
		p.line("[killed by signal: " + exit.GetSignal() + "]")
	case exit.GetCode() != 0:
		p.line(fmt.Sprintf("[exit code: %d]", exit.GetCode()))
	case p.midLine:
		p.line("")
	}
}

func (p *callPrinter) line(text string) {
	if p.midLine && text != "" {
		fmt.Fprintln(p.w)
	}
	fmt.Fprint(p.w, text)
	if !strings.HasSuffix(text, "\n") {
		fmt.Fprintln(p.w)
	}
	p.midLine = false
}
