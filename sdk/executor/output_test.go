package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

func TestOutputLimit(t *testing.T) {
	tmp := t.TempDir()
	f := startIn(t, tmp, executor.Options{})
	spills := func() []string {
		files, _ := filepath.Glob(filepath.Join(tmp, "*", "*"))
		return files
	}
	r := f.run(t, "head -c 64000 /dev/zero | tr '\\0' x")
	if s := r.GetStdout(); len(s.GetData()) != 64000 || s.GetTruncated() || s.GetSpillPath() != "" || len(spills()) > 0 {
		t.Errorf("exactly the limit: %d bytes, truncated %v, files %v", len(s.GetData()), s.GetTruncated(), spills())
	}
	r = f.run(t, "printf a; head -c 64000 /dev/zero | tr '\\0' x")
	s := r.GetStdout()
	if !bytes.Equal(s.GetData(), bytes.Repeat([]byte("x"), 64000)) || !s.GetTruncated() || s.GetSpillCapped() {
		t.Errorf("one over: %d bytes, %.10q, truncated %v", len(s.GetData()), s.GetData(), s.GetTruncated())
	}
	if whole, err := os.ReadFile(s.GetSpillPath()); err != nil || string(whole) != "a"+strings.Repeat("x", 64000) {
		t.Errorf("spilled %d bytes, %v", len(whole), err)
	}
	name := regexp.MustCompile(fmt.Sprintf(`^dsh-bash-%d-\d+-[0-9a-f]{12}-stdout\.log$`, os.Getpid()))
	if !name.MatchString(filepath.Base(s.GetSpillPath())) {
		t.Errorf("spilled to %s", s.GetSpillPath())
	}
	file, _ := os.Stat(s.GetSpillPath())
	dir, _ := os.Stat(filepath.Dir(s.GetSpillPath()))
	if file.Mode().Perm() != 0o600 || dir.Mode().Perm() != 0o700 || filepath.Dir(filepath.Dir(s.GetSpillPath())) != tmp {
		t.Errorf("got modes %v, %v in %s", file.Mode(), dir.Mode(), s.GetSpillPath())
	}
	r = f.run(t, "seq 1 50000 >&2")
	if s := r.GetStderr(); !strings.HasSuffix(s.GetSpillPath(), "-stderr.log") || !strings.HasSuffix(string(s.GetData()), "\n50000\n") || r.GetStdout().GetTruncated() {
		t.Errorf("stderr spilled to %s", s.GetSpillPath())
	}
	f.instance.Stop()
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTailBeginsAtACharacter(t *testing.T) {
	f := start(t, executor.Options{})
	r := f.run(t, "printf '€%.0s' $(seq 30000)")
	data := r.GetStdout().GetData()
	if len(data) != 63999 || !utf8.Valid(data) || !r.GetStdout().GetTruncated() {
		t.Errorf("got %d bytes, valid: %v", len(data), utf8.Valid(data))
	}
}

func TestSpillStopsAtItsLimit(t *testing.T) {
	f := start(t, executor.Options{OutputLimit: 1000, SpillLimit: 1500})
	for size, capped := range map[int]bool{1500: false, 1501: true, 3_000_000: true} {
		s := f.run(t, fmt.Sprintf("head -c %d /dev/zero", size)).GetStdout()
		info, err := os.Stat(s.GetSpillPath())
		if err != nil || info.Size() != 1500 || s.GetSpillCapped() != capped || len(s.GetData()) != 1000 {
			t.Errorf("%d bytes: capped %v, %v", size, s.GetSpillCapped(), err)
		}
	}
}

func TestSpillThatCannotBeWrittenCostsOnlyTheFile(t *testing.T) {
	f := startIn(t, "/proc/nowhere", executor.Options{})
	r := f.run(t, "seq 1 50000; exit 4")
	s := r.GetStdout()
	if !strings.HasSuffix(string(s.GetData()), "\n50000\n") || !s.GetTruncated() || s.GetSpillPath() != "" || s.GetSpillCapped() || r.GetExit().GetCode() != 4 {
		t.Errorf("got exit %v, path %q", r.GetExit(), s.GetSpillPath())
	}
}

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
	messages, _ := f.live(t, "for i in 1 2 3 4 5 6 7 8 9 10; do echo o$i; sleep .01; echo e$i >&2; sleep .01; done")
	want := ""
	for i := range 10 {
		want += fmt.Sprintf("o%d\ne%d\n", i+1, i+1)
	}
	if got := string(bytes.Join(messages, nil)); got != want || len(messages) > 10 {
		t.Errorf("got %d messages: %q", len(messages), got)
	}
}

func TestLiveOutputComesWhileTheCommandRuns(t *testing.T) {
	f := start(t, executor.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	went := t.TempDir() + "/went"
	_, err := f.Run(ctx, &bashv1.RunRequest_Run{
		Command: &bashv1.Command{Command: "echo now; until [ -e " + went + " ]; do sleep .01; done"},
	}, func(data []byte) {
		if string(data) == "now\n" {
			_ = os.WriteFile(went, nil, 0o600)
		}
	})
	if err != nil || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
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

// A caller that reads nothing neither slows the command down nor costs memory.
func TestUnreadLiveOutputDoesNotHoldTheCommand(t *testing.T) {
	f := start(t, executor.Options{})
	stream, err := bashv1.NewBashClient(f.instance.Conn()).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(t.TempDir(), "done")
	run := &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "head -c 100000000 /dev/zero; echo >" + done}}
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: run}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command done", func() bool { _, err := os.Stat(done); return err == nil })
}

func TestMemoryDoesNotGrowWithOutput(t *testing.T) {
	for name, command := range map[string]string{
		"one line":   `head -c 400000000 /dev/zero | tr '\0' x; echo; echo END`,
		"many lines": `yes | head -c 400000000; echo END`,
	} {
		t.Run(name, func(t *testing.T) {
			c := startChild(t, command, time.Minute)
			c.waitFor(t, "started")
			c.waitFor(t, "result")
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid()))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(text), "VmHWM:")
			peak, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil || peak > 80<<10 {
				t.Errorf("peak of %d kB, %v", peak, err)
			}
		})
	}
}
