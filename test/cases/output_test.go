package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestShortCommandsLoseNoOutput(t *testing.T) {
	e := newHome(t, configuration{}).start()
	t.Run("eight sessions", func(t *testing.T) {
		for n := range 8 {
			session := e.session(e.h.work())
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				var calls []call
				var want []string
				for i := range 60 {
					calls = append(calls, run(fmt.Sprintf("echo x%d-%d", n, i)))
					want = append(want, fmt.Sprintf("x%d-%d\n", n, i))
				}
				expect(t, e.prompt(session, calls...), want...)
			})
		}
	})
}

// truncated finds where the whole of a cut output is.
var truncated = regexp.MustCompile(`\n\[output truncated; full output: (/\S+-stdout\.log)\]\n?`)

func TestACutOutputIsWholeCharactersAndTheSessionLivesOn(t *testing.T) {
	h := newHome(t, configuration{})
	cwd := h.work()
	e := h.start()
	session := e.session(cwd)
	result := e.prompt(session, run("printf '€%.0s' $(seq 30000)"))[0] // the model refuses what is torn
	text, _, cut := strings.Cut(result, "\n[output truncated; full output: ")
	if !cut || strings.Trim(text, "€") != "" || len(text) != 63999 {
		t.Errorf("got %d bytes, ends %q", len(text), result[len(result)-200:])
	}
	e.stop()
	e = h.start()
	e.load(session, cwd)
	expect(t, e.prompt(session, run("echo ok")), "ok\n")
}

func TestALongOutputKeepsItsEnd(t *testing.T) {
	e := newHome(t, configuration{}).start()
	result := e.prompt(e.session(e.h.work()), run("seq 1 200000; echo FATAL-x >&2; exit 9"))[0]
	where := truncated.FindStringSubmatch(result)
	if where == nil || !strings.HasSuffix(result, "\n[stderr]\nFATAL-x\n[exit code: 9]") || !strings.Contains(result, "\n200000\n") || len(result) > 65000 {
		t.Fatalf("got %d bytes, ends %q", len(result), result[max(0, len(result)-300):])
	}
	whole, err := os.ReadFile(where[1])
	if err != nil || strings.Count(string(whole), "\n") != 200000 || !strings.HasPrefix(string(whole), "1\n2\n") {
		t.Errorf("spilled %d bytes, %v", len(whole), err)
	}
	e.stop()
	if left, _ := filepath.Glob(filepath.Join(e.h.dir, "dsh-bash-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestMemoryOfTheHostAndItsPluginsDoesNotGrowWithOutput(t *testing.T) {
	e := newHome(t, configuration{}).start()
	result := e.prompt(e.session(e.h.work()), run(`head -c 400000000 /dev/zero | tr '\0' x; echo; echo END`))[0]
	if !strings.Contains(result, "x\nEND\n") || len(result) > 65000 {
		t.Errorf("got %d bytes", len(result))
	}
	for _, pid := range append(childrenOf(e.cmd.Process.Pid), e.cmd.Process.Pid) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		if peak, err := strconv.Atoi(strings.Fields(rest)[0]); err != nil || peak > 100<<10 {
			t.Errorf("process %d: peak of %d kB, %v", pid, peak, err)
		}
	}
}

func TestASpillThatCannotBeWrittenCostsOnlyTheFile(t *testing.T) {
	h := newHome(t, configuration{})
	text, err := os.ReadFile(h.file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "plugin: bash-local,", "plugin: bash-local, env: {TMPDIR: /proc},", 1))
	if err := os.WriteFile(h.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	e := h.start()
	result := e.prompt(e.session(h.work()), run("seq 1 50000; exit 4"))[0]
	if !strings.HasSuffix(result, "\n50000\n[output truncated; full output: (unavailable)]\n[exit code: 4]") {
		t.Errorf("ends %q", result[max(0, len(result)-200):])
	}
}

var stopped = regexp.MustCompile(`\n\[some output was dropped from memory; full output: /\S+-stdout\.log \(only its beginning: the file has reached its limit\)\]\n`)

func TestTheSpillOfATaskStopsGrowingAtItsLimit(t *testing.T) {
	h := newHome(t, configuration{bash: "{outputLimitBytes: 1000, spillLimitBytes: 100000}"})
	e := h.start()
	session := e.session(h.work())
	expect(t, e.prompt(session, background("yes | head -c 50000000; echo END")), "started background task bash-1")
	var results []string
	eventually(t, "the task over", func() bool {
		results = append(results, e.prompt(session, output("bash-1"))...)
		return strings.HasSuffix(results[len(results)-1], "[status: completed, exit code: 0]")
	})
	all := strings.Join(results, "\n")
	if !strings.Contains(all, "\nEND\n") || !stopped.MatchString(all) {
		t.Errorf("got %d bytes, ends %q", len(all), all[max(0, len(all)-300):])
	}
	files, err := filepath.Glob(filepath.Join(h.dir, "dsh-bash-*", "*-stdout.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("found %v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Size() != 100000 || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
}

func TestTheModelReadsNoColoursAndNoRedraws(t *testing.T) {
	h := newHome(t, configuration{bash: "{outputLimitBytes: 1000}"})
	e := h.start()
	results := e.prompt(e.session(h.work()),
		run(`printf '\e[31mred\e[0m\n'; for i in 1 2 3; do printf '\r%s%%' $i; done; echo`),
		run(`for i in $(seq 300); do printf '\e[31mred\e[0m\n'; done`))
	if results[0] != "red\n3%\n" {
		t.Errorf("got %q", results[0])
	}
	where := truncated.FindStringSubmatch(results[1])
	if where == nil || strings.Contains(results[1], "\x1b") {
		t.Fatalf("got %q", results[1])
	}
	if whole, err := os.ReadFile(where[1]); err != nil || string(whole) != strings.Repeat("\x1b[31mred\x1b[0m\n", 300) {
		t.Errorf("the file lacks the raw bytes: %.40q, %v", whole, err)
	}
}
