package cases

import (
	"fmt"
	"strings"
	"testing"
)

// What an editor shows of a turn is what came before its answer: each stretch between two answers is one whole turn.
func TestTheUpdatesOfATurnComeBeforeItsAnswer(t *testing.T) {
	turns, pieces := 300, 50
	if raceEnabled { // the model is in this process, and slow then
		turns = 60
	}
	e := newHome(t, configuration{}).start()
	session := e.session(e.h.work())
	from := len(e.since(0))
	var want []string
	for turn := range turns {
		var says []string
		for i := range pieces {
			says = append(says, fmt.Sprintf("%d.%d ", turn, i))
		}
		// The next prompt is sent at once: the answer is all that an editor waits for.
		answers := e.ask(session, e.h.model.add([]call{run(fmt.Sprint("echo ", turn))}, says...))
		if reason := e.stopReason(answers); reason != "end_turn" {
			t.Fatalf("turn %d was answered %q", turn, reason)
		}
		want = append(want, strings.Join(says, "")+"[pending][in_progress][completed "+fmt.Sprint(turn)+"\n]done")
	}
	e.call("session/list", map[string]any{}) // what comes too late has come now
	var got strings.Builder
	turn := 0
	for _, f := range e.since(from) {
		switch u := f.Params.Update; {
		case f.Method == "" && turn < turns:
			if got.String() != want[turn] {
				t.Errorf("before the answer %d came %q, want %q", turn, got.String(), want[turn])
			}
			turn++
			got.Reset()
		case u.SessionUpdate == "agent_message_chunk":
			got.WriteString(u.text())
		case u.Status == "completed":
			fmt.Fprintf(&got, "[completed %s]", strings.TrimSuffix(strings.TrimPrefix(u.text(), "```console\n"), "```"))
		case u.Status != "":
			fmt.Fprintf(&got, "[%s]", u.Status)
		}
	}
	if turn != turns || got.Len() > 0 {
		t.Errorf("after %d answers came %q", turn, got.String())
	}
}

func TestASecondPromptIsRefusedAndTheFirstUnharmed(t *testing.T) {
	e := newHome(t, configuration{}).start()
	cwd, elsewhere := e.h.work(), e.h.work()
	session, other := e.session(cwd), e.session(elsewhere)
	results, wait := e.begin(session, run(gate+"; pwd"), run("echo next"))
	atGate(t, cwd)
	second := <-e.ask(session, e.h.model.add([]call{run("touch second")}))
	if second.Error == nil || second.Error.Code != -32602 || second.Error.Message != "a prompt is already in flight for this session" {
		t.Errorf("the second prompt: %+v", second)
	}
	expect(t, e.prompt(other, run("pwd")), elsewhere+"\n") // while the first still waits
	openGate(t, cwd)
	wait()
	expect(t, results(), cwd+"\n", "next\n")
	expect(t, e.prompt(session, run("ls")), "open\nrunning\n") // the model refuses roles that do not alternate
}

func TestServersThatAreNotUsedAreSaidToBeSo(t *testing.T) {
	e := newHome(t, configuration{}).start()
	server := map[string]any{"name": "files", "command": "/bin/false", "args": []any{}, "env": []any{}}
	e.session(e.h.work()) // an empty list is not worth a word
	e.call("session/new", map[string]any{"cwd": e.h.work(), "mcpServers": []any{server, server}})
	const said = "the editor's mcpServers are not used yet"
	eventually(t, "the log says that they are not used", func() bool { return strings.Contains(e.log.String(), said) })
	e.stop()
	if n := strings.Count(e.log.String(), said); n != 1 {
		t.Errorf("said %d times", n)
	}
}
