package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dsh-go/dsh/host/doctor"
	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what this machine can and cannot guarantee",
		Long: `Doctor looks at what dsh and its plugins need of this machine, and prints one line for each thing: ok, note (something optional is
missing) or fail (dsh cannot work), and what follows of what is missing and what you can do about it. It exits with 1 when something
fails. No configuration is read, and no plugin is started.`,
		Example: `  dsh doctor
  dsh doctor --json | jq '.[] | select(.level != "ok")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := doctor.Judge(doctor.Gather(cmd.Context(), os.Getenv, examineSandbox(cmd.Context())))
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), checks); err != nil {
					return err
				}
			} else {
				printChecks(cmd.OutOrStdout(), checks)
			}
			if doctor.Failed(checks) {
				return exitCode(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the checks as one line of JSON")
	return cmd
}

// examineSandbox asks the plugin, which the host does not know.
func examineSandbox(ctx context.Context) doctor.Sandbox {
	return doctor.Sandbox(bashsandbox.Examine(ctx))
}

func printChecks(w io.Writer, checks []doctor.Check) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		text := c.Detail
		if c.Level != doctor.OK {
			text = fmt.Sprintf("%s: %s; %s", c.Detail, c.Consequence, c.Remedy)
		}
		fmt.Fprintf(t, "%-4s\t%s\t%s\n", c.Level, c.Name, oneLine(text, 0))
	}
	t.Flush()
}
