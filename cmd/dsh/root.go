package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// execute runs a command line and returns the exit status.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	default:
		fmt.Fprintf(stderr, "dsh: %v\n", err)
		return 1
	}
}

// exitCode ends a command with a status; what there is to say has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "dsh",
		Short: "A plugin host for agent tools",
		Long: `dsh loads every capability of an agent - the shell executor, the tools a model sees, the agent loop,
the model adapter, the editor bridge - as a plugin process of its own, and carries every call between them.

Without -c a command uses ./dsh.yaml, then dsh/dsh.yaml below the user's configuration directory
(XDG_CONFIG_HOME, else ~/.config), then a built-in configuration that needs nothing installed and no key.`,
		Example: `  dsh prompt 'uname -a'
  dsh call bash '{"command":"echo hi","description":"Say hi"}'
  dsh run -c configs/acp.yaml`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVarP(&o.config, "config", "c", "", "configuration `file`")
	root.PersistentFlags().StringVar(&o.logLevel, "log-level", "", "`level` of the log on stderr: trace, debug, info, warn or error")
	root.PersistentFlags().StringVar(&o.logFormat, "log-format", "text", "`format` of the log on stderr: text, or json with one object a line")
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml")
	_ = root.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(
		[]string{"trace", "debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	addGroup(root, "Commands:", newRun(&o), newDev(&o), newCheck(&o), newCall(&o), newPrompt(&o), newSessions(&o),
		newPlugin(), newDoctor(), newVersion())
	addGroup(root, "Look at a running host and steer it:",
		newPs(&o), newGraph(&o), newLogs(&o), newTasks(&o), newTools(&o), newReload(&o), newStop(&o))
	return root
}

// addGroup adds commands that the help lists under a title.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
		root.AddCommand(c)
	}
}

// workdir is the directory that calls and prompts are about.
func workdir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	return dir, nil
}
