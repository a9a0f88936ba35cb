package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/agents"
)

func newPrompt(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prompt TEXT",
		Short: "Send one prompt and print the answer",
		Long: `Prompt starts the plugins of a configuration, sends one message to a new session in the working directory, and stops
them. The answer goes to stdout; the tool calls and what they print go to stderr. It exits with 0 only if the turn completed.
The first Ctrl-C cancels the turn.` + ownOrRunning,
		Example: `  dsh prompt 'uname -a'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cwd, err := workdir()
			if err != nil {
				return err
			}
			show := (&turnPrinter{answer: cmd.OutOrStdout(), activity: cmd.ErrOrStderr()}).event
			if asJSON {
				show = func(e agents.Event) error {
					line, err := agents.Encode(e)
					if err == nil {
						_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", line)
					}
					return err
				}
			}
			return withHost(o, cmd.ErrOrStderr(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
				return prompt(ctx, agents.NewClient(conn), cwd, args[0], show)
			})
		},
	}
	addAttach(cmd, o)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the events of the turn as JSON lines")
	return cmd
}

// prompt runs one turn in a new session. When ctx ends, the turn is cancelled and its end still awaited.
func prompt(ctx context.Context, client *agents.Client, cwd, text string, show func(agents.Event) error) error {
	session, err := client.Create(ctx, cwd)
	if err != nil {
		return fmt.Errorf("create a session: %w", err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx), session) }() // a running host would keep it live
	const promptID = "cli"
	events, err := client.Prompt(context.WithoutCancel(ctx), agents.Prompt{
		SessionID: session, PromptID: promptID, Content: []agents.ContentBlock{{Type: agents.BlockText, Text: text}},
	})
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = client.Cancel(context.WithoutCancel(ctx), session, promptID) })
	defer stop()
	for {
		event, err := events.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the turn's events ended early")
			}
			return fmt.Errorf("prompt: %w", err)
		}
		if err := show(event); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if end, ok := event.Data.(*agents.TurnEnd); ok {
			return turnError(end)
		}
	}
}

func turnError(end *agents.TurnEnd) error {
	switch {
	case end.Reason == agents.ReasonCompleted:
		return nil
	case end.Error != "":
		return fmt.Errorf("turn failed: %s", end.Error)
	default:
		return fmt.Errorf("the turn did not complete: %s", end.Reason)
	}
}

// turnPrinter shows a turn to a person.
type turnPrinter struct {
	answer, activity io.Writer
	midLine          bool // of the activity
	answered         bool
}

func (p *turnPrinter) event(e agents.Event) error {
	switch d := e.Data.(type) {
	case *agents.AssistantChunk:
		fmt.Fprint(p.answer, d.Text)
		p.answered = p.answered || d.Text != ""
	case *agents.ModelRetry:
		p.freshLine()
		fmt.Fprintf(p.activity, "! %s; trying again in %v\n", d.Reason, time.Duration(d.DelayMS)*time.Millisecond)
	case *agents.AssistantMessage:
		if p.answered && !strings.HasSuffix(d.Text, "\n") {
			fmt.Fprintln(p.answer)
		}
		p.answered = false
	case *agents.ToolCall:
		p.freshLine()
		fmt.Fprintf(p.activity, "• %s\n", d.Presentation.Title)
	case *agents.ToolOutput:
		p.show(d.Text)
	case *agents.ToolResult:
		if d.Exit == nil {
			for _, c := range d.Content {
				p.freshLine()
				p.show(c.Text)
			}
		}
		p.freshLine()
	}
	return nil
}

func (p *turnPrinter) show(text string) {
	if text == "" {
		return
	}
	fmt.Fprint(p.activity, text)
	p.midLine = !strings.HasSuffix(text, "\n")
}

func (p *turnPrinter) freshLine() {
	if p.midLine {
		fmt.Fprintln(p.activity)
		p.midLine = false
	}
}
