package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

// readAll reads what a request that does not follow gives: messages, and (n) for n entries dropped.
func readAll(t *testing.T, l *Logs, req *controlv1.LogsRequest) []string {
	t.Helper()
	var got []string
	err := l.read(t.Context(), req, func(answer *controlv1.LogsResponse) error {
		got = append(got, shown(answer))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func shown(answer *controlv1.LogsResponse) string {
	if n := answer.GetDropped(); n > 0 {
		return fmt.Sprintf("(%d)", n)
	}
	return answer.GetEntry().GetMessage()
}

func TestWhatIsRead(t *testing.T) {
	l := NewLogs()
	l.Accept("dsh", hclog.Trace, "trace")
	l.Accept("dsh", hclog.Debug, "debug")
	l.Accept("dsh", hclog.Info, "host")
	l.Accept("dsh.bash", hclog.Info, "bash")
	l.Accept("dsh.bash.executor", hclog.Warn, "within bash")
	l.Accept("dsh.bash-2", hclog.Info, "another")
	l.Accept("dsh", hclog.Error, "about bash", "row", "bash")
	for _, test := range []struct {
		name string
		req  *controlv1.LogsRequest
		want string
	}{
		{"nothing", &controlv1.LogsRequest{}, ""},
		{"the last", &controlv1.LogsRequest{Tail: 1}, "about bash"},
		{"from info on unless it says otherwise", &controlv1.LogsRequest{Tail: 99}, "host|bash|within bash|another|about bash"},
		{"debug", &controlv1.LogsRequest{Tail: 99, Level: controlv1.Level_LEVEL_DEBUG}, "debug|host|bash|within bash|another|about bash"},
		{"warnings", &controlv1.LogsRequest{Tail: 99, Level: controlv1.Level_LEVEL_WARN}, "within bash|about bash"},
		{"errors", &controlv1.LogsRequest{Tail: 99, Level: controlv1.Level_LEVEL_ERROR}, "about bash"},
		{"of a row and about it", &controlv1.LogsRequest{Tail: 99, Row: "bash"}, "bash|within bash|about bash"},
		{"the last two of a row", &controlv1.LogsRequest{Tail: 2, Row: "bash"}, "within bash|about bash"},
		{"the last of another row", &controlv1.LogsRequest{Tail: 1, Row: "bash-2"}, "another"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(readAll(t, l, test.req), "|"); got != test.want {
				t.Errorf("got %s, not %s", got, test.want)
			}
		})
	}
}

func TestSoManyEntriesAreKept(t *testing.T) {
	l := NewLogs()
	for i := range logsKept + 3 {
		l.Accept("dsh", hclog.Info, fmt.Sprint(i))
	}
	got := readAll(t, l, &controlv1.LogsRequest{Tail: 2 * logsKept})
	if len(got) != logsKept || got[0] != "3" || got[logsKept-1] != fmt.Sprint(logsKept+2) {
		t.Errorf("%d entries are kept, %s to %s", len(got), got[0], got[len(got)-1])
	}
}

// The host logs more than is kept while a follower's send hangs: it is not held up, and the follower is told how much it missed.
func TestASlowFollowerLosesEntriesAndIsToldSo(t *testing.T) {
	l := NewLogs()
	l.Accept("dsh", hclog.Info, "first")
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	err := l.read(ctx, &controlv1.LogsRequest{Tail: 1, Follow: true}, func(answer *controlv1.LogsResponse) error {
		got = append(got, shown(answer))
		switch len(got) {
		case 1: // the follower is here: nobody reads while this is logged
			for i := range logsKept + 5 {
				l.Accept("dsh", hclog.Info, fmt.Sprint(i))
			}
		case 2 + logsKept:
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"first", "(5)"}
	for i := range logsKept {
		want = append(want, fmt.Sprint(i+5))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the follower got %d entries, %q …, not %d, %q …", len(got), got[:3], len(want), want[:3])
	}
}

func TestEveryEntryIsReadOrCountedAsDropped(t *testing.T) {
	const writers, each = 4, 2 * logsKept
	l := NewLogs()
	l.Accept("dsh", hclog.Info, "first")
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	seen := -1 // the first does not count
	err := l.read(ctx, &controlv1.LogsRequest{Tail: 1, Follow: true}, func(answer *controlv1.LogsResponse) error {
		if seen < 0 {
			for range writers {
				writing.Go(func() {
					for range each {
						l.Accept("dsh", hclog.Info, "more")
					}
				})
			}
		}
		seen += int(answer.GetDropped())
		if answer.GetEntry() != nil {
			seen++
		}
		if seen == writers*each {
			cancel()
		}
		return nil
	})
	writing.Wait()
	if err != nil || seen != writers*each {
		t.Errorf("of %d entries %d were read or counted: %v", writers*each, seen, err)
	}
}

func TestAFollowerThatIsGoneEndsItsReading(t *testing.T) {
	l := NewLogs()
	l.Accept("dsh", hclog.Info, "first")
	gone := errors.New("gone")
	err := l.read(t.Context(), &controlv1.LogsRequest{Tail: 1, Follow: true}, func(*controlv1.LogsResponse) error { return gone })
	if !errors.Is(err, gone) {
		t.Errorf("reading ended with %v", err)
	}
}

func TestEntries(t *testing.T) {
	long := strings.Repeat("x", maxLogText)
	for _, test := range []struct {
		name    string
		message string
		args    []any
		want    string
	}{
		{"fields", "started", []any{"pid", 12, "for", errors.New("it")}, "started pid=12 for=it"},
		{"a formatted field", "m", []any{"took", hclog.Fmt("%d ms", 3)}, "m took=3 ms"},
		{"a field without a value", "m", []any{"odd"}, "m odd="},
		{"bytes that are no text", "a\xffb", nil, "a\ufffdb"},
		{"a long message", long + "yz", nil, long + fmt.Sprintf("… (%d bytes)", maxLogText+2)},
		{"a long field", "m", []any{"k", long + "y"}, "m k=" + long + fmt.Sprintf("… (%d bytes)", maxLogText+1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := NewLogs()
			log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "dsh", Level: hclog.Off})
			log.RegisterSink(l)
			log.Named("row").Info(test.message, test.args...)
			entry := l.entries[0]
			got := entry.GetMessage()
			for _, f := range entry.GetFields() {
				got += " " + f.GetKey() + "=" + f.GetValue()
			}
			if got != test.want || entry.GetSource() != "row" || entry.GetLevel() != controlv1.Level_LEVEL_INFO {
				t.Errorf("the entry is %v: %q, not %q", entry, got, test.want)
			}
		})
	}
}
