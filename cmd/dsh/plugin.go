package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dsh-go/dsh/sdk/scaffold"
)

func newPlugin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Begin a plugin of your own",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newPluginNew())
	return cmd
}

func newPluginNew() *cobra.Command {
	var p scaffold.Plugin
	var dir string
	cmd := &cobra.Command{
		Use:   "new NAME --kind KIND",
		Short: "Write a Go module for a plugin that builds, passes its tests and answers",
		Long: `New writes a Go module of its own for a plugin: the program, a test, a configuration that loads it beside the built-in plugins
that it needs, and a README. It works as it is; change it into what you want. The kinds:

  tool      a tool that a model can call; it counts the lines of a file
  executor  what runs the commands of all tools, with the conformance suite as its test
  hook      it sees every tool call before it runs; it refuses commands that contain a word
  model     it answers every message with its text

The folder must be empty or not exist; nothing is overwritten. A dsh that was built from a checkout makes a plugin for the SDK of
that checkout: of the one that the working directory is in, or that --sdk names.`,
		Example: `  dsh plugin new line-counter --kind tool
  dsh plugin new no-sudo --kind hook --dir plugins/no-sudo --module github.com/you/no-sudo`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Name = args[0]
			if dir == "" {
				dir = p.Name
			}
			if err := chooseSDK(&p, builtAs()); err != nil {
				return err
			}
			names, err := p.Write(dir)
			if err != nil {
				return err
			}
			printNew(cmd.OutOrStdout(), p, dir, names)
			return nil
		},
	}
	cmd.Flags().StringVar(&p.Kind, "kind", "", "what the plugin begins as, its `kind`: "+strings.Join(scaffold.Kinds, ", "))
	cmd.Flags().StringVar(&dir, "dir", "", "the `folder` to write to (default ./NAME)")
	cmd.Flags().StringVar(&p.Module, "module", "", "the `path` of the Go module (default example.com/NAME)")
	cmd.Flags().StringVar(&p.SDK, "sdk", "", "a checkout of dsh to take the SDK from: its `folder`")
	_ = cmd.MarkFlagRequired("kind")
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.MarkFlagDirname("sdk")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(scaffold.Kinds, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// released is a version that the go command can find. The pseudo-version of a build may be of a commit that nobody else has.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// builtAs is the version of this program's module; empty: unknown.
func builtAs() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// chooseSDK takes the SDK of the version that this dsh was built as, or that of a checkout when nobody else has the version.
func chooseSDK(p *scaffold.Plugin, version string) error {
	if p.SDK != "" {
		return nil
	}
	if released.MatchString(version) {
		p.Version = version
		return nil
	}
	cwd, err := workdir()
	if err != nil {
		return err
	}
	if p.SDK, err = scaffold.FindSDK(cwd); err == nil && p.SDK == "" {
		err = errors.New("this dsh is no released version, so that there is no SDK of it to download: name a checkout of dsh with --sdk")
	}
	return err
}

// printNew says what there is now, and what to do with it.
func printNew(w io.Writer, p scaffold.Plugin, dir string, names []string) {
	fmt.Fprintf(w, "%s, a plugin of the kind %s, in %s: %s\n\n", p.Name, p.Kind, dir, strings.Join(names, ", "))
	fmt.Fprintf(w, "Next:\n  cd %s\n", quoteWord(dir))
	if p.SDK == "" {
		fmt.Fprintln(w, "  go mod tidy")
	}
	fmt.Fprintf(w, "  go test ./...\n  %s\n  dsh dev\n", p.Try())
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

// quoteWord makes one word of a text for a shell.
func quoteWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
