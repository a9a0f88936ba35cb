package executortest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

var outputRules = []rule{
	{"exactly at the limit is not truncated and makes no file", atTheLimit},
	{"one byte over keeps the last 64000 bytes, and the whole stream is in a spill file", overTheLimit},
	{"the tail moves forward to a character boundary", boundary},
	{"the end of a long output and the exit are there", longOutput},
	{"past its limit the spill file stops and the note says so", spillLimit},
	{"a spill that cannot be written costs the file, never the result", noSpill},
	{"spill files are removed when the host ends cleanly", spillsRemoved},
	{"memory does not grow with output", memory},
	{"live output comes while the command runs", liveOutput},
	{"live output does not end inside a character", liveCharacters},
	{"unread live output does not hold the command", unreadLive},
	{"short commands lose nothing", shortCommands},
}

func atTheLimit(t *testing.T, e Executor) {
	i := e.start(t, nil)
	if s := i.run(t, `head -c 64000 /dev/zero | tr '\0' x`).GetStdout(); len(s.GetData()) != 64000 || s.GetTruncated() || s.GetSpillPath() != "" {
		t.Errorf("%d bytes, truncated %v, spilled to %q", len(s.GetData()), s.GetTruncated(), s.GetSpillPath())
	}
}

func overTheLimit(t *testing.T, e Executor) {
	i := e.start(t, nil)
	s := i.run(t, `printf a; head -c 64000 /dev/zero | tr '\0' x`).GetStdout()
	if !bytes.Equal(s.GetData(), bytes.Repeat([]byte("x"), 64000)) || !s.GetTruncated() || s.GetSpillCapped() {
		t.Errorf("%d bytes, %.10q, truncated %v, capped %v", len(s.GetData()), s.GetData(), s.GetTruncated(), s.GetSpillCapped())
	}
	if whole, err := os.ReadFile(s.GetSpillPath()); err != nil || string(whole) != "a"+strings.Repeat("x", 64000) {
		t.Errorf("spilled %d bytes, %v", len(whole), err)
	}
	name := regexp.MustCompile(fmt.Sprintf(`^dsh-bash-%d-\d+-[0-9a-f]{12}-stdout\.log$`, os.Getpid()))
	if !name.MatchString(filepath.Base(s.GetSpillPath())) {
		t.Errorf("spilled to %s", s.GetSpillPath())
	}
	file, err := os.Stat(s.GetSpillPath())
	if err != nil || file.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", file.Mode(), err)
	}
	if dir, err := os.Stat(filepath.Dir(s.GetSpillPath())); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", dir.Mode(), err)
	}
	r := i.run(t, "seq 1 50000 >&2")
	if s := r.GetStderr(); !strings.HasSuffix(s.GetSpillPath(), "-stderr.log") || !strings.HasSuffix(string(s.GetData()), "\n50000\n") || r.GetStdout().GetTruncated() {
		t.Errorf("stderr spilled to %s", s.GetSpillPath())
	}
}

func boundary(t *testing.T, e Executor) {
	s := e.start(t, nil).run(t, "printf '€%.0s' $(seq 30000)").GetStdout()
	if data := s.GetData(); len(data) != 63999 || !utf8.Valid(data) || !s.GetTruncated() {
		t.Errorf("got %d bytes, valid: %v", len(data), utf8.Valid(data))
	}
}

func longOutput(t *testing.T, e Executor) {
	r := e.start(t, nil).run(t, "seq 1 200000; echo FATAL-x >&2; exit 9")
	if !strings.HasSuffix(string(r.GetStdout().GetData()), "\n200000\n") || string(r.GetStderr().GetData()) != "FATAL-x\n" || r.GetExit().GetCode() != 9 {
		t.Errorf("got exit %v, stderr %q", r.GetExit(), r.GetStderr().GetData())
	}
	whole, err := os.ReadFile(r.GetStdout().GetSpillPath())
	if err != nil || bytes.Count(whole, []byte("\n")) != 200000 || !bytes.HasPrefix(whole, []byte("1\n2\n")) {
		t.Errorf("spilled %d bytes, %v", len(whole), err)
	}
}

func spillLimit(t *testing.T, e Executor) {
	i := e.start(t, config{"outputLimitBytes": 1000, "spillLimitBytes": 1500})
	for size, capped := range map[int]bool{1500: false, 1501: true, 3_000_000: true} {
		s := i.run(t, fmt.Sprintf("head -c %d /dev/zero", size)).GetStdout()
		info, err := os.Stat(s.GetSpillPath())
		if err != nil || info.Size() != 1500 || s.GetSpillCapped() != capped || len(s.GetData()) != 1000 {
			t.Errorf("%d bytes: capped %v, %v", size, s.GetSpillCapped(), err)
		}
	}
}

func noSpill(t *testing.T, e Executor) {
	i := e.startProcess(t)
	first := i.run(t, "seq 1 50000").GetStdout().GetSpillPath()
	// Where the directory was there is a file now.
	if err := os.RemoveAll(filepath.Dir(first)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(first), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e.NeedsDirectory {
		if err := i.runError(t, i.command("s-1", "seq 1 50000")); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("got %v, want a refusal", err)
		}
		return
	}
	r := i.run(t, "seq 1 50000; exit 4")
	s := r.GetStdout()
	if !strings.HasSuffix(string(s.GetData()), "\n50000\n") || !s.GetTruncated() || s.GetSpillPath() != "" || s.GetSpillCapped() || r.GetExit().GetCode() != 4 {
		t.Errorf("got exit %v, path %q", r.GetExit(), s.GetSpillPath())
	}
}

func spillsRemoved(t *testing.T, e Executor) {
	i := e.start(t, nil)
	path := i.run(t, "seq 1 50000").GetStdout().GetSpillPath()
	i.Stop()
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("the directory of %s: %v", path, err)
	}
}

func memory(t *testing.T, e Executor) {
	for name, command := range map[string]string{
		"one line":   `head -c 400000000 /dev/zero | tr '\0' x; echo; echo END`,
		"many lines": `yes | head -c 400000000; echo END`,
	} {
		t.Run(name, func(t *testing.T) {
			i := e.startProcess(t)
			if data := string(i.run(t, command).GetStdout().GetData()); !strings.HasSuffix(data, "\nEND\n") || len(data) != 64000 {
				t.Errorf("got %d bytes, at the end %q", len(data), data[max(0, len(data)-10):])
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.PID()))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(status), "VmHWM:")
			if peak, err := strconv.Atoi(strings.Fields(rest)[0]); err != nil || peak > 90<<10 {
				t.Errorf("peak of %d kB, %v", peak, err)
			}
		})
	}
}

func liveOutput(t *testing.T, e Executor) {
	i := e.start(t, nil)
	_, err := i.Run(t.Context(), &bashv1.RunRequest_Run{
		Command: i.command("s-1", "echo now; until [ -e went ]; do sleep .01; done"), TimeoutMs: 10_000,
	}, func(data []byte) {
		if string(data) == "now\n" {
			_ = os.WriteFile(filepath.Join(i.dir, "went"), nil, 0o600)
		}
	})
	if _, missing := os.Stat(filepath.Join(i.dir, "went")); err != nil || missing != nil {
		t.Errorf("got %v, %v", err, missing)
	}
}

func liveCharacters(t *testing.T, e Executor) {
	i := e.start(t, nil)
	var all []byte
	run := &bashv1.RunRequest_Run{Command: i.command("s-1", `for i in 1 2 3; do printf '\xe2\x82'; sleep .08; printf '\xac'; sleep .08; done`)}
	if _, err := i.Run(t.Context(), run, func(data []byte) {
		if !utf8.Valid(data) {
			t.Errorf("got %q", data)
		}
		all = append(all, data...)
	}); err != nil || string(all) != "€€€" {
		t.Errorf("got %q, %v", all, err)
	}
}

func unreadLive(t *testing.T, e Executor) {
	i := e.start(t, nil)
	i.stream(t.Context(), t, "head -c 100000000 /dev/zero; echo >done")
	eventually(t, "the command done", func() bool { _, err := os.Stat(filepath.Join(i.dir, "done")); return err == nil })
}

func shortCommands(t *testing.T, e Executor) {
	i := e.start(t, nil)
	t.Run("eight at a time", func(t *testing.T) {
		for caller := range 8 {
			t.Run(strconv.Itoa(caller), func(t *testing.T) {
				t.Parallel()
				for n := range 60 {
					want := strconv.Itoa(caller*1000 + n)
					expectOut(t, i.run(t, "echo x"+want), "x"+want+"\n", 0)
				}
			})
		}
	})
	id := i.task(t, "s-1", "seq 1 3000")
	began := time.Now()
	if stdout, _ := i.read(t, id, "s-1"); !strings.HasSuffix(stdout, "\n3000\n") || !strings.HasPrefix(stdout, "1\n") || time.Since(began) > 5*time.Second {
		t.Errorf("got %d bytes of a task after %v", len(stdout), time.Since(began))
	}
}
