package acp

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/controlv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// listLimit is how long the list of tools, or of the executor's tasks, may take to come.
const listLimit = 10 * time.Second

// maxCommandLine is how much of a task's command /tasks shows.
const maxCommandLine = 120

// A command is a prompt that the bridge answers by itself, without a model. It is not part of the session: the log does not have it,
// and the model never learns of it.
type command struct {
	availableCommand
	run func(ctx context.Context, p *prompt, argument string) (string, error)
	// needs says when it is offered.
	needs need
}

// need is what must be so for a command to be offered.
type need int

const (
	nothing       need = iota
	anExecutor         // there is one
	thePermission      // the configuration allows it
)

// allows is false for a command that the configuration does not allow: it is not there then.
func (b *bridge) allows(c command) bool { return c.needs != thePermission || b.mayReload }

// commandList is filled by init: /help needs the list that it is in.
var commandList []command

func init() {
	commandList = []command{
		{availableCommand{Name: "tools", Description: "List the tools that the model can use"}, listTools, nothing},
		{availableCommand{Name: "tasks", Description: "List the background tasks of this session"}, listTasks, anExecutor},
		{availableCommand{Name: "kill", Description: "Kill a background task of this session", Input: &commandInput{"task id"}}, killTask, anExecutor},
		{availableCommand{Name: "reload", Description: "Replace the running instance of a plugin", Input: &commandInput{"row"}}, reloadRow, thePermission},
		{availableCommand{Name: "help", Description: "List these commands"}, help, nothing},
	}
}

// invocation is a command and its argument.
type invocation struct {
	command
	argument string
}

// parseCommand finds the command that a prompt is. A slash before an unknown word means nothing.
func (b *bridge) parseCommand(content []agents.ContentBlock) *invocation {
	if len(content) != 1 || content[0].Type != agents.BlockText {
		return nil
	}
	text, slash := strings.CutPrefix(strings.TrimSpace(content[0].Text), "/")
	if !slash {
		return nil
	}
	word, argument := text, ""
	if space := strings.IndexAny(text, " \t\r\n"); space >= 0 {
		word, argument = text[:space], strings.TrimSpace(text[space:])
	}
	for _, c := range commandList {
		if c.Name == word && b.allows(c) {
			return &invocation{c, argument}
		}
	}
	return nil
}

// runCommand answers a prompt that is a command.
func (p *prompt) runCommand(context.Context, *request) {
	if !p.session.isLive() {
		p.refused(unknownSession(p.session.id))
		return
	}
	text, err := p.command.run(p.ctx, p, p.command.argument)
	switch {
	case p.wasCancelled():
		p.request.answer(promptResult{stopCancelled})
	case p.ctx.Err() != nil:
		p.request.fail(turnFailed(context.Cause(p.ctx).Error()))
	default:
		if err != nil {
			text = message(err)
		}
		said := update{Kind: kindAgentMessage, Content: textBlock(text)}
		p.request.send(line(p.session.id, said), jsonrpc.Answer(p.request.id, promptResult{stopEndTurn}))
	}
}

func listTools(ctx context.Context, p *prompt, _ string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	tools, _, err := p.b.tools.List(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot list the tools: %s", message(err))
	}
	if len(tools) == 0 {
		return "There are no tools.", nil
	}
	var text strings.Builder
	for _, t := range tools {
		fmt.Fprintf(&text, "- `%s`: %s\n", t.GetName(), firstLine(t.GetDescription()))
	}
	return text.String(), nil
}

func listTasks(ctx context.Context, p *prompt, _ string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	tasks, err := p.b.bash.List(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot list the background tasks: %s", message(err))
	}
	var lines strings.Builder
	for _, t := range tasks {
		if t.GetSessionId() == p.session.id {
			fmt.Fprintf(&lines, "%s [status: %s] %s\n", t.GetId(), taskStatus(t.GetStatus()), shorten(firstLine(t.GetCommand())))
		}
	}
	if lines.Len() == 0 {
		return "This session has no background tasks.", nil
	}
	return "```text\n" + lines.String() + "```\n", nil
}

// taskStatus says it in the words of bash_output.
func taskStatus(s *bashv1.TaskStatus) string {
	switch s.GetState() {
	case bashv1.TaskStatus_STATE_RUNNING:
		return "running"
	case bashv1.TaskStatus_STATE_COMPLETED:
		return fmt.Sprintf("completed, exit code: %d", s.GetExit().GetCode())
	case bashv1.TaskStatus_STATE_KILLED:
		if signal := s.GetExit().GetSignal(); signal != "" {
			return "killed by " + signal
		}
		return "killed"
	}
	return "unknown"
}

func killTask(ctx context.Context, p *prompt, argument string) (string, error) {
	if argument == "" || strings.ContainsAny(argument, " \t\r\n") {
		return "Say which: `/kill <task id>`. `/tasks` lists the tasks of this session.", nil
	}
	finished, err := p.b.bash.Kill(ctx, argument, p.session.id)
	switch {
	case err != nil:
		return "", err
	case finished:
		return fmt.Sprintf("task %s had already finished", argument), nil
	}
	return "killed background task " + argument, nil
}

// reloadRow replaces the instance of a row. That of the bridge itself is replaced once this prompt has its answer.
func reloadRow(ctx context.Context, p *prompt, row string) (string, error) {
	if row == "" || strings.ContainsAny(row, " \t\r\n") {
		return "Say which: `/reload <row>`. `dsh ps` lists the rows.", nil
	}
	b := p.b
	if row == b.c.Row() {
		b.running.Go(func() { _, _ = b.control.Reload(b.work, &controlv1.ReloadRequest{Row: row}) })
		return "Row `" + row + "` is being reloaded: this connection stays.", nil
	}
	answer, err := b.control.Reload(ctx, &controlv1.ReloadRequest{Row: row})
	if err != nil {
		return "", fmt.Errorf("row `%s` was not reloaded: %s", row, message(err))
	}
	return fmt.Sprintf("Row `%s` has been reloaded: generation %d, calls were held for %s.", row, answer.GetGeneration(),
		answer.GetHeld().AsDuration().Round(100*time.Microsecond)), nil
}

func help(_ context.Context, p *prompt, _ string) (string, error) {
	var text strings.Builder
	for _, c := range commandList {
		if !p.b.allows(c) {
			continue
		}
		argument := ""
		if c.Input != nil {
			argument = " <" + c.Input.Hint + ">"
		}
		fmt.Fprintf(&text, "- `/%s%s`: %s\n", c.Name, argument, c.Description)
	}
	return text.String(), nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

func shorten(line string) string {
	if n := cut(line, maxCommandLine); n < len(line) {
		return line[:n] + "…"
	}
	return line
}

// offer is what is announced to the sessions: the commands, and with /tools the tools.
type offer struct {
	commands []availableCommand
	version  int // counts the changes, from 1; 0: not known yet
}

// keepOffer finds out what to offer, now and whenever the tools have changed, and announces it to the live sessions.
func (b *bridge) keepOffer() {
	for {
		if commands, ok := b.offered(); ok {
			b.mu.Lock()
			if b.offer.version == 0 || !reflect.DeepEqual(commands, b.offer.commands) {
				b.offer = offer{commands, b.offer.version + 1}
			}
			for _, s := range b.sessions {
				if s.live {
					s.announceLater()
				}
			}
			b.mu.Unlock()
		}
		select {
		case <-b.toolsChanged:
		case <-b.work.Done():
			return
		}
	}
}

// offered asks who has the tools, and whether there is an executor.
func (b *bridge) offered() ([]availableCommand, bool) {
	tools, _, err := b.tools.List(b.work)
	if err != nil {
		b.log.Debug("no commands are offered: the tools are not known", "error", err)
		return nil, false
	}
	ctx, cancel := context.WithTimeout(b.work, listLimit)
	defer cancel()
	_, err = b.bash.List(ctx)
	noTasks := status.Code(err) == codes.Unavailable || status.Code(err) == codes.Unimplemented
	var commands []availableCommand
	for _, c := range commandList {
		if c.needs == anExecutor && noTasks || !b.allows(c) {
			continue
		}
		if c.Name == "tools" && len(tools) > 0 {
			c.Description += ": " + names(tools)
		}
		commands = append(commands, c.availableCommand)
	}
	return commands, true
}

func names(tools []*toolsv1.Tool) string {
	var list []string
	for _, t := range tools {
		list = append(list, t.GetName())
	}
	return strings.Join(list, ", ")
}

// announceLater puts the announcement into the mailbox: where it comes after the answer that opens the session, and not after the one
// that closes it. mu is held.
func (s *session) announceLater() {
	if s.announced == s.b.offer.version || s.announcing {
		return
	}
	s.announcing = true
	s.deliver(mail{notice, func() {
		if line := s.announcement(); line != nil && s.isLive() {
			if err := s.b.lease.Write(s.b.work, line); err != nil && s.b.work.Err() == nil {
				s.b.log.Debug("the commands were not announced", "session", s.id, "error", err)
			}
		}
	}})
}

// announcement is the line that tells the session what is offered; nil when it knows, or when that is a successor's to tell.
func (s *session) announcement() []byte {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.announcing = false
	if s.announced == s.b.offer.version || s.b.handing {
		return nil
	}
	s.announced = s.b.offer.version
	return line(s.id, update{Kind: kindCommands, Commands: s.b.offer.commands})
}
