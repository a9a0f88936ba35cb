package agent_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func (w *world) load(session string) (string, uint64) {
	w.t.Helper()
	cwd, last, err := w.Load(w.t.Context(), session)
	if err != nil {
		w.t.Fatal(err)
	}
	return cwd, last
}

func (w *world) write(session string, log []byte) {
	w.t.Helper()
	if err := os.MkdirAll(w.state, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.logFile(session), log, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func TestCreateRefusesWhatIsNoDirectory(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.cwd, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]string{
		"rel":           "cwd must be an absolute path: rel",
		"":              "cwd must be an absolute path: ",
		w.cwd + "/gone": "cwd does not exist: " + w.cwd + "/gone",
		file:            "cwd is not a directory: " + file,
		file + "/x":     "cwd cannot be used: stat " + file + "/x: not a directory",
	} {
		_, err := w.Create(t.Context(), cwd)
		wantStatus(t, err, codes.InvalidArgument, want)
	}
}

func TestASessionIsStoredPrivatelyAtItsCreation(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	if got := readFile(t, w.logFile(session)); bytes.Count(got, []byte("\n")) != 1 || !bytes.HasPrefix(got, []byte(`{"seq":1,`)) {
		t.Errorf("log %q", got)
	}
	for path, want := range map[string]fs.FileMode{w.state: 0o700 | fs.ModeDir, w.logFile(session): 0o600, strings.TrimSuffix(w.logFile(session), "jsonl") + "info": 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestALoadedSessionShowsWhatWasShownLiveAndGoesOn(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c1 bash {1}"}), echo
	session := w.create()
	live := w.rest(w.send(session, "hi"))
	before := readFile(t, w.logFile(session))
	w.restart()
	if cwd, last := w.load(session); cwd != w.cwd || last != live[len(live)-1].Seq {
		t.Errorf("cwd %s, last event %d", cwd, last)
	}
	equal(t, "history", show(w.history(session)[1:]), show(live))
	if !bytes.Equal(before, readFile(t, w.logFile(session))) {
		t.Error("loading changed the log")
	}
	next := w.rest(w.send(session, "more"))
	if next[0].Seq != live[len(live)-1].Seq+1 {
		t.Errorf("the next turn begins with event %d", next[0].Seq)
	}
	equal(t, "request", showMessages(w.request(2).GetMessages()), `
system be good

The working directory is `+w.cwd+`.
user hi
assistant  [c1 bash {1}]
tool ran {1} (c1)
assistant done
user more`)
}

func TestASessionIsLoadedOnce(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	_, _, err := w.Load(t.Context(), session)
	wantStatus(t, err, codes.AlreadyExists, "session "+session+" is already loaded")

	other := &world{t: t, state: w.state, cwd: w.cwd, host: w.host}
	other.start(nil)
	_, _, err = other.Load(t.Context(), session)
	wantStatus(t, err, codes.AlreadyExists, "session "+session+" is already loaded by another process")

	if err := w.Close(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := other.Load(t.Context(), session)
			errs <- err
		}()
	}
	first, second := <-errs, <-errs
	if first != nil {
		first, second = second, first
	}
	if first != nil {
		t.Error(first)
	}
	wantStatus(t, second, codes.AlreadyExists, "session "+session+" is already loaded")
}

func TestWhatCannotBeLoaded(t *testing.T) {
	w := newWorld(t)
	const created = `{"seq":1,"time":"2026-01-01T00:00:00.000Z","type":"session/created","format":1,"session_id":"s","cwd":"/w"}` + "\n"
	const start = `{"seq":2,"time":"2026-01-01T00:00:00.000Z","type":"turn/start"}` + "\n"
	for _, tt := range []struct{ name, log, want string }{
		{"future", strings.Replace(created, `"format":1`, `"format":2`, 1) + "???\n", "load session %s: its log has format 2 and this dsh reads formats up to 1; use a newer dsh"},
		{"relative", strings.Replace(created, `"/w"`, `"w"`, 1), `load session %s: its cwd is not an absolute path: "w"`},
		{"no-json", created + "{\n" + start, "load session %s: FILE:2 is damaged: decode event: unexpected end of JSON input; repair or delete the line and what follows it"},
		{"last-line", created + start + "{}\n", "load session %s: FILE:3 is damaged: decode event: it has no seq or no type; repair or delete the line and what follows it"},
		{"gap", created + strings.Replace(start, `"seq":2`, `"seq":3`, 1) + start, "load session %s: FILE:2 is damaged: event 3 stands after event 1; repair or delete the line and what follows it"},
		{"no-beginning", strings.Replace(start, `"seq":2`, `"seq":1`, 1) + start, "load session %s: FILE:1 is damaged: event 1 is turn/start; repair or delete the line and what follows it"},
		{"nul-above", created + strings.Replace(start, "turn", "tu\x00n", 1) + start + start, "load session %s: FILE:2 is damaged: decode event: invalid character '\\x00' in string literal; repair or delete the line and what follows it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.write(tt.name, []byte(tt.log))
			_, _, err := w.Load(t.Context(), tt.name)
			wantStatus(t, err, codes.FailedPrecondition, strings.Replace(fmt.Sprintf(tt.want, tt.name), "FILE", w.logFile(tt.name), 1))
			if got := readFile(t, w.logFile(tt.name)); string(got) != tt.log {
				t.Errorf("the file was changed to %q", got)
			}
		})
	}
	for _, id := range []string{"ghost", "", "../x", "..", "a/b", ".", strings.Repeat("a", 300)} {
		_, _, err := w.Load(t.Context(), id)
		wantStatus(t, err, codes.NotFound, "unknown session: "+id)
	}
}

func TestCloseCancelsWaitsAndFrees(t *testing.T) {
	w := newWorld(t)
	w.model = hang
	session := w.create()
	running := w.send(session, "running")
	w.until(running, "assistant/chunk")
	queued := w.send(session, "queued")
	if err := w.Close(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if log := readFile(t, w.logFile(session)); bytes.Count(log, []byte(`"reason":"aborted"`)) != 2 {
		t.Errorf("closed, and the log is\n%s", log)
	}
	w.until(running, "turn/end")
	equal(t, "queued", show(w.rest(queued)), "turn/start\nuser/message queued\nturn/end aborted")
	_, err := w.Prompt(t.Context(), agents.Prompt{SessionID: session, PromptID: "p", Content: text("hi")})
	wantStatus(t, err, codes.NotFound, "unknown session: "+session)
	wantStatus(t, w.Close(t.Context(), session), codes.NotFound, "unknown session: "+session)
	w.load(session)
}

func TestDeleteRemovesTheSessionForGood(t *testing.T) {
	w := newWorld(t)
	w.model = hang
	session, stored := w.create(), w.create()
	w.until(w.send(session, "hi"), "assistant/chunk")
	if err := w.Close(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	w.write("broken", []byte("???\n"))
	for _, id := range []string{session, stored, "broken", session, "ghost", "../../etc/passwd"} {
		if err := w.Delete(t.Context(), id); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
		_, _, err := w.Load(t.Context(), id)
		wantStatus(t, err, codes.NotFound, "unknown session: "+id)
	}
	left, err := os.ReadDir(w.state)
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestDeleteSparesWhatAnotherProcessUses(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	other := &world{t: t, state: w.state, host: w.host}
	other.start(nil)
	wantStatus(t, other.Delete(t.Context(), session), codes.FailedPrecondition, "delete session "+session+": it is in use by another process")
	w.rest(w.send(session, "hi"))
}

func TestAStoredSessionIsReadWithoutDisturbingItsOwner(t *testing.T) {
	owner := newWorld(t)
	owner.model = hang
	session := owner.create()
	running := owner.send(session, "hi")
	owner.until(running, "assistant/chunk")
	reader := &world{t: t, state: owner.state, host: &plugintest.Host{}}
	reader.start(nil)
	equal(t, "read", show(reader.history(session)), `
session/created
turn/start
user/message hi
session/title hi
step/start
assistant/chunk thinking`)
	_, err := reader.follow(session, 0)
	wantStatus(t, err, codes.NotFound, "unknown session: "+session)
	owner.cancel(session, "hi")
	owner.until(running, "turn/end")
	events, err := reader.Subscribe(t.Context(), session, 6, false)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the rest", show(reader.rest(events)), `
assistant/message thinking
step/end
turn/end aborted`)
}

// follow is the first event of a subscription that follows.
func (w *world) follow(session string, after uint64) (agents.Event, error) {
	events, err := w.Subscribe(w.t.Context(), session, after, true)
	if err != nil {
		return agents.Event{}, err
	}
	return events.Next()
}
