package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

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
