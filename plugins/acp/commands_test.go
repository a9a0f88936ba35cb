package acp_test

import (
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

const (
	helpCommand  = `{"name":"help","description":"List these commands"}`
	tasksCommand = `{"name":"tasks","description":"List the background tasks of this session"}`
	killCommand  = `{"name":"kill","description":"Kill a background task of this session","input":{"hint":"task id"}}`
)

func toolsCommand(tools string) string {
	return `{"name":"tools","description":"List the tools that the model can use` + tools + `"}`
}

func commandsLine(session string, commands ...string) string {
	return updateLine(session, `{"sessionUpdate":"available_commands_update","availableCommands":[`+strings.Join(commands, ",")+`]}`)
}

// withTools opens a bridge that offers the tools, and an executor with the tasks, to a session s1.
func withTools(t *testing.T, tools []string, tasks ...*bashv1.Task) *editor {
	e := newEditor(t, sayOrHang)
	e.tools = newFakeTools(tools...)
	e.tools.bash = &fakeBash{tasks: tasks}
	e.open()
	listed := ""
	if len(tools) > 0 {
		listed = ": " + strings.Join(tools, ", ")
	}
	e.expect(commandsLine("s1", toolsCommand(listed), tasksCommand, killCommand, helpCommand))
	return e
}

// change tells the bridge that the tools have changed.
func (e *editor) change(tools ...string) {
	e.tools.offer(tools...)
	e.tools.changed <- struct{}{}
}

func task(id, session, command string, status *bashv1.TaskStatus) *bashv1.Task {
	return &bashv1.Task{Id: id, SessionId: session, Command: command, Status: status}
}

var running = &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_RUNNING}

func TestCommandsAreAnnouncedAfterTheAnswer(t *testing.T) {
	e := withTools(t, []string{"bash", "read"})
	announcement := commandsLine("s1", toolsCommand(": bash, read"), tasksCommand, killCommand, helpCommand)
	for _, method := range []string{"session/load", "session/resume"} {
		e.send(sessionLine("1", "session/close", "s1"), sessionLine("2", method, "s1"))
		e.expect(resultLine("1", "{}"), resultLine("2", "{}"), announcement)
	}
	e.newSession("s2")
	e.expect(strings.ReplaceAll(announcement, "s1", "s2"))
	e.quiet()
}

func TestChangesAreAnnouncedToLiveSessions(t *testing.T) {
	e := withTools(t, []string{"bash"})
	e.newSession("s2")
	e.expect(commandsLine("s2", toolsCommand(": bash"), tasksCommand, killCommand, helpCommand))
	e.send(sessionLine("1", "session/close", "s2"))
	e.expect(resultLine("1", "{}"))
	e.change("bash", "echo")
	e.expect(commandsLine("s1", toolsCommand(": bash, echo"), tasksCommand, killCommand, helpCommand))
	e.tools.mu.Lock()
	e.tools.bash = nil
	e.tools.mu.Unlock()
	e.change()
	e.expect(commandsLine("s1", toolsCommand(""), helpCommand))
	e.change() // nothing has
	e.change("x")
	e.expect(commandsLine("s1", toolsCommand(": x"), helpCommand))
	e.quiet()
}

// changeInTheTurn lets the tools change while the session s1 has a turn; s2 has heard of it.
func changeInTheTurn(t *testing.T) *editor {
	e := withTools(t, []string{"bash"})
	e.newSession("s2")
	e.expect(commandsLine("s2", toolsCommand(": bash"), tasksCommand, killCommand, helpCommand))
	e.send(promptLine("1", "s1", "hang"))
	e.expect(messageLine("s1", "working"))
	e.change("echo")
	e.expect(commandsLine("s2", toolsCommand(": echo"), tasksCommand, killCommand, helpCommand))
	return e
}

func TestAnnouncementWaitsForTheTurn(t *testing.T) {
	e := changeInTheTurn(t)
	e.quiet()
	e.send(cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"), commandsLine("s1", toolsCommand(": echo"), tasksCommand, killCommand, helpCommand))
	e.quiet()
}

// A turn is handed over although an announcement waits for its end; the successor makes it.
func TestReloadWhileAnAnnouncementWaits(t *testing.T) {
	e := changeInTheTurn(t)
	old := e.bridge
	e.retire(pluginv1.RetireRequest_REASON_RELOAD)
	e.start()
	old.Stop()
	e.expect(commandsLine("s2", toolsCommand(": echo"), tasksCommand, killCommand, helpCommand))
	e.send(cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"), commandsLine("s1", toolsCommand(": echo"), tasksCommand, killCommand, helpCommand))
	e.quiet()
}

func TestCommands(t *testing.T) {
	e := withTools(t, []string{"bash", "read"},
		task("bash-1", "s1", "sleep 60\necho done", running),
		task("bash-2", "s9", "secret", running),
		task("bash-3", "s1", "exit 3", &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_COMPLETED, Exit: &bashv1.Exit{Code: 3}}),
		task("bash-4", "s1", strings.Repeat("é", 100), &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED, Exit: &bashv1.Exit{Signal: "SIGTERM"}}),
		task("bash-5", "s1", "x", &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_KILLED}),
	)
	for _, test := range []struct{ name, prompt, want string }{
		{"tools", "/tools", "- `bash`: Does bash.\\n- `read`: Does read.\\n"},
		{
			"tasks: those of the session", "/tasks", "```text\\nbash-1 [status: running] sleep 60\\nbash-3 [status: completed, exit code: 3] exit 3\\n" +
				"bash-4 [status: killed by SIGTERM] " + strings.Repeat("é", 60) + "…\\nbash-5 [status: killed] x\\n```\\n",
		},
		{"kill", "/kill bash-1", "killed background task bash-1"},
		{"kill what is over", "  /kill   bash-3  ", "task bash-3 had already finished"},
		{"kill another session's", "/kill bash-2", "task bash-2 belongs to another session"},
		{"kill what is not there", "/kill bash-99", `unknown bash task \"bash-99\"`},
		{"kill nothing", "/kill", "Say which: `/kill <task id>`. `/tasks` lists the tasks of this session."},
		{
			"help", "/help", "- `/tools`: List the tools that the model can use\\n- `/tasks`: List the background tasks of this session\\n" +
				"- `/kill <task id>`: Kill a background task of this session\\n- `/help`: List these commands\\n",
		},
		{"an unknown word is a prompt", "/usr/bin/env", "/usr/bin/env"},
		{"so is a word that only begins like one", "/toolsmith", "/toolsmith"},
		{"and one inside", "see /tools", "see /tools"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e.t = t
			e.send(promptLine("1", "s1", test.prompt))
			e.expect(messageLine("s1", test.want), stopLine("1", "end_turn"))
		})
	}
	e.t = t
	for _, call := range e.agents.calls {
		if strings.Contains(call, "/tasks") || strings.Contains(call, "/kill") || strings.Contains(call, "/help") {
			t.Errorf("the agent got %s", call)
		}
	}
	e.send(sessionLine("1", "session/close", "s1"))
	e.expect(resultLine("1", "{}"))
	e.send(promptLine("2", "s1", "/help"))
	e.expect(errorLine("2", "-32002", "unknown session: s1"))
}

func TestCommandsWithoutAnExecutorOrTasks(t *testing.T) {
	e := withTools(t, nil)
	e.send(promptLine("1", "s1", "/tools"))
	e.expect(messageLine("s1", "There are no tools."), stopLine("1", "end_turn"))
	e.send(promptLine("2", "s1", "/tasks"))
	e.expect(messageLine("s1", "This session has no background tasks."), stopLine("2", "end_turn"))
	e.tools.mu.Lock()
	e.tools.bash = nil
	e.tools.mu.Unlock()
	e.send(promptLine("3", "s1", "/tasks"))
	e.expect(messageLine("s1", `cannot list the background tasks: no plugin provides the seam \"bash\"`), stopLine("3", "end_turn"))
}

func TestACommandIsAPromptInFlight(t *testing.T) {
	e := withTools(t, []string{"bash"})
	hanging := make(chan struct{})
	e.tools.mu.Lock()
	e.tools.bash = &fakeBash{hang: hanging}
	e.tools.mu.Unlock()
	e.send(promptLine("1", "s1", "/tasks"))
	<-hanging
	e.send(promptLine("2", "s1", "/help"))
	e.expect(errorLine("2", "-32602", "a prompt is already in flight for this session"))
	e.send(cancelLine("s1"))
	e.expect(stopLine("1", "cancelled"))
	e.send(promptLine("3", "s1", "hello"))
	e.expect(messageLine("s1", "hello"), stopLine("3", "end_turn"))
	e.quiet()
}
