package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/plugins/agent"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
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

// crashed returns the log of a session with two turns of every kind of event, and the events in it.
func crashed(t testing.TB) []byte {
	w := newWorld(t)
	w.model = func(_ context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
		if n == 1 || n == 3 {
			return llm.Stop, emit(llm.TextEvent("grün"))
		}
		for _, e := range []*llm.Event{
			llm.ReasoningEvent("hm"), llm.TextEvent("a"), llm.TextEvent("€"), llm.UsageEvent(&llm.Usage{InputTokens: 1}),
			llm.ToolCallEvent(&llm.ToolCall{Id: fmt.Sprint("c", n), Name: "bash", Arguments: "1"}),
			llm.ToolCallEvent(&llm.ToolCall{Id: fmt.Sprint("d", n), Name: "bash", Arguments: "2"}),
		} {
			if err := emit(e); err != nil {
				return 0, err
			}
		}
		return llm.Stop, nil
	}
	w.tool = func(call *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		send(presented("first"))
		send(ask("may I?", "k"))
		<-w.answers
		return echo(call, cancelled, send)
	}
	session := w.create()
	turn := func(prompt string) {
		events := w.sendAsking(session, prompt)
		for range 2 {
			w.answer(session, w.until(events, "tool/ask").Data.(*agents.ToolAsk).CallID, agents.OutcomeAllowed)
		}
		w.rest(events)
	}
	turn("one")
	if err := w.Inject(t.Context(), session, "news", plugin, "k"); err != nil {
		t.Fatal(err)
	}
	turn("two")
	return readFile(t, w.logFile(session))
}

// TestALogCutAtAnyByteIsRepaired also pads some with what a power failure leaves.
func TestALogCutAtAnyByteIsRepaired(t *testing.T) {
	log := crashed(t)
	w := newWorld(t)
	firstLine := bytes.IndexByte(log, '\n') + 1
	repairAt := func(cut int, padding []byte) error {
		session := fmt.Sprintf("cut-%d-%d", cut, len(padding))
		w.write(session, append(bytes.Clone(log[:cut]), padding...))
		last, err := agent.LoadLog(w.state, session)
		if cut < firstLine {
			if status.Code(err) != codes.NotFound {
				return fmt.Errorf("a session that was never created: %w", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		kept := log[:bytes.LastIndexByte(log[:cut], '\n')+1]
		repaired := readFile(t, w.logFile(session))
		if !bytes.HasPrefix(repaired, kept) {
			return fmt.Errorf("whole events were lost")
		}
		if err := wellFormed(repaired, last); err != nil {
			return err
		}
		added := bytes.TrimPrefix(repaired, kept)
		if open := bytes.LastIndex(kept, []byte(`"type":"turn/start"`)) > bytes.LastIndex(kept, []byte(`"type":"turn/end"`)); open != (len(added) > 0) ||
			open && !bytes.Contains(added, []byte(`"type":"turn/end","reason":"interrupted"}`)) {
			return fmt.Errorf("repaired with %s", added)
		}
		return nil
	}
	second := bytes.LastIndex(log, []byte(`"type":"turn/start"`)) // the first turn is like it
	for cut := range len(log) + 1 {
		if cut > firstLine+100 && cut < second-100 {
			continue
		}
		if err := repairAt(cut, nil); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		cut := rapid.IntRange(0, len(log)).Draw(r, "cut")
		padding := bytes.Repeat([]byte{0}, rapid.IntRange(1, 5000).Draw(r, "zeroes"))
		if err := repairAt(cut, padding); err != nil {
			r.Fatalf("cut at %d, %d zeroes: %v", cut, len(padding), err)
		}
	})
}

// wellFormed checks numbers, turns, steps and calls of a log.
func wellFormed(log []byte, last uint64) error {
	var seq uint64
	var turn, step bool
	calls := map[string]bool{}
	asking := ""
	for line := range bytes.Lines(log) {
		e, err := agents.Decode(line)
		if err != nil {
			return err
		}
		if seq++; e.Seq != seq {
			return fmt.Errorf("event %d in line %d", e.Seq, seq)
		}
		ok := true
		switch d := e.Data.(type) {
		case *agents.TurnStart:
			ok, turn = !turn, true
		case *agents.StepStart:
			ok, step = turn && !step, true
		case *agents.AssistantMessage:
			ok = step && len(calls) == 0
			for _, c := range d.ToolCalls {
				calls[c.CallID] = true
			}
		case *agents.ToolCall, *agents.AssistantChunk, *agents.Usage:
			ok = step
		case *agents.ToolAsk:
			ok, asking = calls[d.CallID] && asking == "", d.CallID
		case *agents.ToolAnswer:
			ok, asking = asking == d.CallID, ""
		case *agents.ToolStart:
			ok = calls[d.CallID] && asking == ""
		case *agents.ToolResult:
			ok = calls[d.CallID] && asking == ""
			delete(calls, d.CallID)
		case *agents.StepEnd:
			ok, step = step && len(calls) == 0, false
		case *agents.TurnEnd:
			ok, turn = turn && !step, false
		}
		if !ok {
			return fmt.Errorf("event %d, %s, is out of place", e.Seq, e.Type)
		}
	}
	if turn || seq != last {
		return fmt.Errorf("the log ends with event %d (said to be %d), in a turn: %v", seq, last, turn)
	}
	return nil
}

func TestWhatACrashLeftOpenIsAnsweredOnce(t *testing.T) {
	log := crashed(t)
	w := newWorld(t)
	inCall := bytes.LastIndex(log, []byte(`"type":"tool/start","call_id":"c2"`))
	inCall += bytes.IndexByte(log[inCall:], '\n') + 1
	w.write("in-call", log[:inCall+10]) // and a torn line
	inAsk := bytes.LastIndex(log, []byte(`"type":"tool/ask","call_id":"d2"`))
	inAsk += bytes.IndexByte(log[inAsk:], '\n') + 1
	w.write("in-ask", log[:inAsk])
	inAnswer := bytes.LastIndex(log, []byte(`"text":"grün"`))
	w.write("in-answer", log[:inAnswer])
	for session, want := range map[string]string{
		"in-call": `
tool/start c2
tool/result c2 Tool call interrupted by a crash; no result was recorded. (interrupted)
tool/result d2 Tool call interrupted by a crash; no result was recorded. (interrupted)
step/end
turn/end interrupted`,
		"in-ask": `
tool/ask d2 permissions: may I?
tool/answer d2 cancelled
tool/result d2 Tool call interrupted by a crash; no result was recorded. (interrupted)
step/end
turn/end interrupted`,
		"in-answer": `
assistant/chunk grün
assistant/message grün
step/end
turn/end interrupted`,
	} {
		for range 2 {
			w.load(session)
			if got := show(w.history(session)); !strings.HasSuffix(got, strings.TrimSpace(want)) {
				t.Errorf("%s:\n%s", session, got)
			}
			if err := w.Close(t.Context(), session); err != nil {
				t.Fatal(err)
			}
		}
		w.load(session)
		turn := show(w.rest(w.send(session, "go on")))
		if !strings.HasSuffix(turn, "turn/end completed") {
			t.Error(turn)
		}
		if err := w.Close(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		_, last := w.load(session) // what was repaired must not swallow what was appended to it
		if got := show(w.history(session)); !strings.HasSuffix(got, strings.TrimSpace(want)+"\n"+turn) {
			t.Errorf("%s is loaded again as\n%s", session, got)
		}
		if err := wellFormed(readFile(t, w.logFile(session)), last); err != nil {
			t.Errorf("%s: %v", session, err)
		}
	}
}

func TestTheLastLineMayHaveLostBytesInTheMiddle(t *testing.T) {
	log := crashed(t)
	w := newWorld(t)
	broken := bytes.Clone(log)
	copy(broken[len(broken)-20:], make([]byte, 10))
	w.write("power", broken)
	_, last := w.load("power")
	if err := wellFormed(readFile(t, w.logFile("power")), last); err != nil {
		t.Error(err)
	}
	turn := show(w.rest(w.send("power", "go on")))
	if err := w.Close(t.Context(), "power"); err != nil {
		t.Fatal(err)
	}
	_, last = w.load("power")
	if got := show(w.history("power")); !strings.HasSuffix(got, "\n"+turn) || !strings.HasSuffix(turn, "turn/end completed") {
		t.Errorf("loaded again as\n%s", got)
	}
	if err := wellFormed(readFile(t, w.logFile("power")), last); err != nil {
		t.Error(err)
	}
}

func TestListShowsNewestFirstInPages(t *testing.T) {
	w := newWorld(t)
	elsewhere := t.TempDir()
	var want []string
	for i := range 5 {
		session := w.create()
		w.rest(w.send(session, fmt.Sprintf("\n  title %d of\tit \nmore", i)))
		want = append([]string{fmt.Sprintf("title %d of it", i)}, want...)
	}
	if _, err := w.Create(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	w.write("torn", []byte(`{"seq":1,`)) // never created
	list := func(cwd, token string) ([]agents.SessionInfo, string) {
		t.Helper()
		page, next, err := w.List(t.Context(), cwd, token)
		if err != nil {
			t.Fatal(err)
		}
		return page, next
	}
	titles := func(page []agents.SessionInfo) string {
		var titles []string
		for _, s := range page {
			titles = append(titles, s.Title)
		}
		return strings.Join(titles, "\n")
	}
	page, next := list(w.cwd, "")
	equal(t, "titles", titles(page), strings.Join(want, "\n"))
	if all, _ := list("", ""); next != "" || len(all) != 6 || all[0].Cwd != elsewhere || all[0].Title != "" {
		t.Errorf("next %q, all %+v", next, all)
	}

	// An older session that is used again is the newest.
	w.rest(w.send(page[4].ID, "again"))
	if again, _ := list(w.cwd, ""); again[0].ID != page[4].ID || !again[0].Updated.After(page[0].Updated) {
		t.Errorf("%+v", again)
	}

	// The list needs no logs, and no list files either.
	infos, err := filepath.Glob(filepath.Join(w.state, "*.info"))
	if err != nil || len(infos) != 6 {
		t.Fatal(infos, err)
	}
	before, _ := list(w.cwd, "")
	for i, info := range infos {
		if err := os.WriteFile(info, make([]byte, i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	after, _ := list(w.cwd, "")
	equal(t, "titles without infos", titles(after), titles(before))

	_, _, err = w.List(t.Context(), "rel", "")
	wantStatus(t, err, codes.InvalidArgument, "cwd must be an absolute path: rel")
	_, _, err = w.List(t.Context(), "", "!")
	wantStatus(t, err, codes.InvalidArgument, "list sessions: the page token is not one of an earlier answer")
}

func TestPagesOfTheListMissAndRepeatNothing(t *testing.T) {
	w := newWorld(t)
	for i := range 230 {
		w.write(fmt.Sprintf("s%03d", i), fmt.Appendf(nil, `{"seq":1,"time":"2026-01-01T00:00:00.000Z","type":"session/created","format":1,"session_id":"s%03d","cwd":"/w"}`+"\n", i))
		info, err := json.Marshal(map[string]string{"cwd": "/w", "updated": fmt.Sprintf("2026-01-01T00:00:%02d.5Z", i%60)})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.state, fmt.Sprintf("s%03d.info", i)), info, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen, token := map[string]bool{}, ""
	var sizes []int
	for {
		page, next, err := w.List(t.Context(), "/w/", token)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			if seen[s.ID] {
				t.Errorf("%s came twice", s.ID)
			}
			seen[s.ID] = true
		}
		sizes = append(sizes, len(page))
		if token = next; token == "" {
			break
		}
	}
	if len(seen) != 230 || fmt.Sprint(sizes) != "[100 100 30]" {
		t.Errorf("%d sessions in pages of %v", len(seen), sizes)
	}
}

func TestTitlesAreCut(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	w.rest(w.send(session, strings.Repeat("ü", 100)))
	page, _, err := w.List(t.Context(), "", "")
	if err != nil || page[0].Title != strings.Repeat("ü", 79)+"…" {
		t.Errorf("%+v, %v", page, err)
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

func TestWhatIsReadIsNotRepaired(t *testing.T) {
	log := crashed(t)
	lines := bytes.SplitAfter(log, []byte("\n"))
	future := bytes.Replace(log, []byte(`"format":1`), []byte(`"format":2`), 1)
	damaged := bytes.Join([][]byte{lines[0], lines[1], []byte("{}\n"), lines[3]}, nil)
	broken := bytes.Clone(log)
	copy(broken[len(broken)-20:], make([]byte, 10))
	for _, tt := range []struct {
		name   string
		log    []byte
		after  uint64
		events int
		want   error
	}{
		{"whole", log, 0, len(lines) - 1, nil},
		{"up-to-its-end", log, uint64(len(lines) - 1), 0, nil},
		{"beyond-its-end", log, uint64(len(lines)), 0, status.Errorf(codes.OutOfRange, "session beyond-its-end has no event %d: the last is %d", len(lines), len(lines)-1)},
		{"torn", log[:len(log)-1], 0, len(lines) - 2, nil},
		{"power-failure", broken, 0, len(lines) - 2, nil},
		{"never-created", log[:20], 0, 0, status.Error(codes.NotFound, "unknown session: never-created")},
		{"future", future, 0, 0, status.Error(codes.FailedPrecondition, "read session future: its log has format 2 and this dsh reads formats up to 1; use a newer dsh")},
		{"damaged", damaged, 0, 2, status.Error(codes.FailedPrecondition, "read session damaged: FILE:3 is damaged: decode event: it has no seq or no type; repair or delete the line and what follows it")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(tt.name, tt.log)
			events, err := w.Subscribe(t.Context(), tt.name, tt.after, false)
			n := 0
			for ; err == nil; n++ {
				_, err = events.Next()
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			wantStatus(t, err, status.Code(tt.want), strings.Replace(status.Convert(tt.want).Message(), "FILE", w.logFile(tt.name), 1))
			if n-1 != tt.events {
				t.Errorf("%d events", n-1)
			}
			if got := readFile(t, w.logFile(tt.name)); !bytes.Equal(got, tt.log) {
				t.Error("the file was changed")
			}
		})
	}
	w := newWorld(t)
	_, err := w.follow("../x", 0)
	wantStatus(t, err, codes.NotFound, "unknown session: ../x")
}

// TestTheListShowsWhatOtherProcessesDo: what is remembered of the files never hides a change.
func TestTheListShowsWhatOtherProcessesDo(t *testing.T) {
	w := newWorld(t)
	other := &world{t: t, state: w.state, cwd: w.cwd, host: &plugintest.Host{}}
	other.model = w.model
	other.start(nil)
	titles := func() string {
		page, _, err := w.List(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		var titles []string
		for _, s := range page {
			titles = append(titles, s.Title)
		}
		return strings.Join(titles, ",")
	}
	equal(t, "none", titles(), "")
	one := other.create()
	equal(t, "new", titles(), "")
	other.rest(other.send(one, "one"))
	equal(t, "titled", titles(), "one")
	two := other.create()
	other.rest(other.send(two, "two"))
	equal(t, "two", titles(), "two,one")
	old := time.Now().Add(-time.Hour) // a change of the directory, long ago
	if err := os.Chtimes(w.state, old, old); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		equal(t, "remembered", titles(), "two,one")
	}
	other.rest(other.send(one, "more"))
	equal(t, "moved up", titles(), "one,two")
	if err := other.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	equal(t, "deleted", titles(), "two")
	if err := os.Remove(filepath.Join(w.state, two+".info")); err != nil {
		t.Fatal(err)
	}
	equal(t, "made anew from the log", titles(), "two")
}
