package executor_test

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

// live runs a command and returns the messages of its output.
func (f *fixture) live(t *testing.T, command string) (messages [][]byte, r *bashv1.Result) {
	t.Helper()
	r, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: command}}, func(data []byte) {
		messages = append(messages, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	return messages, r
}

func TestLiveOutputIsCoalesced(t *testing.T) {
	f := start(t, executor.Options{})
	begin := time.Now()
	messages, _ := f.live(t, "for i in 1 2 3 4 5 6 7 8 9 10; do echo o$i; sleep .01; echo e$i >&2; sleep .01; done")
	// Twenty a second, and at the end what is left.
	if atMost := int(time.Since(begin)/(50*time.Millisecond)) + 2; len(messages) > atMost {
		t.Errorf("got %d messages, want at most %d", len(messages), atMost)
	}
	got, want := map[byte]string{}, map[byte]string{} // each stream keeps its order
	for line := range strings.Lines(string(bytes.Join(messages, nil))) {
		got[line[0]] += line
	}
	for i := range 10 {
		want['o'] += fmt.Sprintf("o%d\n", i+1)
		want['e'] += fmt.Sprintf("e%d\n", i+1)
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLiveOutputIsBounded(t *testing.T) {
	f := start(t, executor.Options{})
	messages, r := f.live(t, "seq 1 1000000")
	all := string(bytes.Join(messages, nil))
	head, tail, cut := strings.Cut(all, "[… ")
	if !cut || len(head) > 256<<10+1 || len(head) < 256<<10-8 || !strings.HasPrefix(head, "1\n2\n3\n") {
		t.Fatalf("got %d bytes, of them %d before the cut", len(all), len(head))
	}
	number, tail, _ := strings.Cut(tail, " bytes not shown …]\n")
	skipped, err := strconv.Atoi(number)
	if err != nil || len(tail) != 16<<10 || !strings.HasSuffix(tail, "\n999999\n1000000\n") {
		t.Errorf("skipped %q, then %d bytes", number, len(tail))
	}
	if whole := 6888896; len(strings.TrimSuffix(head, "\n"))+skipped+len(tail) != whole && len(head)+skipped+len(tail) != whole {
		t.Errorf("%d + %d + %d bytes of %d", len(head), skipped, len(tail), whole)
	}
	for _, message := range messages {
		if len(message) > 32<<10 {
			t.Errorf("a message of %d bytes", len(message))
		}
	}
	if !r.GetStdout().GetTruncated() || !strings.HasSuffix(string(r.GetStdout().GetData()), "1000000\n") {
		t.Error("the result depends on the live output")
	}
}

func TestLiveOutputKeepsCharactersWhole(t *testing.T) {
	f := start(t, executor.Options{})
	messages, _ := f.live(t, `for i in 1 2 3; do printf '\xe2\x82'; printf x >&2; sleep .08; printf '\xac'; sleep .08; done; printf '\xe2'; for i in $(seq 50000); do printf '€'; done`)
	for i, message := range messages {
		if !utf8.ValidString(strings.Replace(string(message), "\xe2\xe2", "\xe2", 1)) {
			t.Errorf("message %d: %.20q … %.20q", i, message, message[max(0, len(message)-10):])
		}
	}
	if all := string(bytes.Join(messages, nil)); !strings.HasPrefix(all, "x€x€x€\xe2€€") || len(all) != 12+1+150000 {
		t.Errorf("got %d bytes: %.40q", len(all), all)
	}
}
