package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

func TestRowsAsAPersonSeesThem(t *testing.T) {
	now := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
	rows := []control.Row{
		{ID: "bash", Plugin: "bash-local", Generation: 3, Phase: "active", Since: now.Add(-90 * time.Second), PID: 12, RSS: 33 << 20, Restarts: 1,
			Retiring: []control.Retiring{{Generation: 1, PID: 10, RSS: 32<<20 + 1<<19, KeptBy: "bash-1, 2 calls"}, {Generation: 2, PID: 11}}},
		{ID: "mine", Generation: 1, Phase: "failed", Reason: "dsh.yaml:4: row \"mine\": two\nlines \x1b[31mred"},
	}
	want := `
ROW     PLUGIN      GEN  STATE     FOR  PID  RSS       RESTARTS  WHY
bash    bash-local  3    active    1m   12   33.0 MiB  1         
  bash              1    retiring       10   32.5 MiB            kept by bash-1, 2 calls
  bash              2    retiring       11   -                   about to end
mine    -           1    failed    -    -    -         0         dsh.yaml:4: row "mine": two lines red
`
	var got strings.Builder
	printRows(&got, rows, now)
	if got.String() != want[1:] {
		t.Errorf("the rows are\n%snot\n%s", &got, want[1:])
	}
}

func TestAge(t *testing.T) {
	for _, test := range []struct {
		span time.Duration
		want string
	}{
		{0, "0s"},
		{59*time.Second + 999*time.Millisecond, "59s"},
		{time.Minute, "1m"},
		{time.Hour, "1h0m"},
		{26*time.Hour + 3*time.Minute, "1d2h"},
	} {
		if got := age(test.span); got != test.want {
			t.Errorf("%s is %s, not %s", test.span, got, test.want)
		}
	}
}

func TestALogEntryIsALine(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 11, 30, 18, 27, 4, 118_000_000, time.Local))
	for _, test := range []struct {
		name   string
		answer *controlv1.LogsResponse
		want   string
	}{
		{"of the host", entry(&controlv1.LogEntry{Time: at, Level: controlv1.Level_LEVEL_INFO, Message: "reloaded"}),
			"18:27:04.118 INFO  host: reloaded"},
		{"with fields", entry(&controlv1.LogEntry{
			Time: at, Level: controlv1.Level_LEVEL_ERROR, Source: "bash", Message: "cannot spill",
			Fields: []*controlv1.LogEntry_Field{{Key: "error", Value: "no space left"}, {Key: "task", Value: "bash-1"}, {Key: "path"}},
		}), `18:27:04.118 ERROR bash: cannot spill error="no space left" task=bash-1 path=""`},
		{"that would steer the terminal", entry(&controlv1.LogEntry{
			Time: at, Level: controlv1.Level_LEVEL_WARN, Source: "mine", Message: "printed: \x1b]0;title\x07\x1b[2Jhi",
		}), "18:27:04.118 WARN  mine: printed: hi"},
		{"that is missing", &controlv1.LogsResponse{Event: &controlv1.LogsResponse_Dropped{Dropped: 12}},
			"(12 entries are missing here: they came faster than they were read)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := entryLine(test.answer); got != test.want {
				t.Errorf("the line is %q, not %q", got, test.want)
			}
		})
	}
}

func entry(e *controlv1.LogEntry) *controlv1.LogsResponse {
	return &controlv1.LogsResponse{Event: &controlv1.LogsResponse_Entry{Entry: e}}
}
