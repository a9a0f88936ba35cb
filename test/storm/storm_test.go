// Package storm rebuilds, reloads and crashes plugins while editors work, and looks for what is lost:
//
//	go test ./test/storm                    # short storms
//	go test ./test/storm -cycles 50 -v      # long ones
package storm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	cycles   = flag.Int("cycles", 1, "rebuilds of each row, and as many reloads of other kinds; rounds of kills")
	sessions = flag.Int("sessions", 8, "sessions that prompt meanwhile")
	seed     = flag.Uint64("seed", 1, "of what the sessions do")
)

var rows = []string{"bash", "tool-bash", "llm", "agent", "acp"}

// program builds dsh, with the race detector when this test has it.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dsh")
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../../cmd/dsh")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build dsh: %v\n%s", err, out)
	}
	return path
}

type storm struct {
	t       *testing.T
	program string
	env     []string
	config  string
	runtime string // where the sockets are
	tmp     string // where commands and their output go
	sources string // of the plugins
	client  *client
	over    atomic.Bool
	// generations are those of the rows.
	generations map[string]int

	prompts, cancels, tasks atomic.Int64
}

// begin starts dsh; built: the host builds the plugins, and builds them again when their sources change.
func begin(t *testing.T, built bool) *storm {
	t.Helper()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	runtime, err := os.MkdirTemp("", "s") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtime) })
	s := &storm{t: t, program: program(t), runtime: runtime, tmp: t.TempDir()}
	s.env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "XDG_RUNTIME_DIR="+runtime, "XDG_STATE_HOME="+t.TempDir(), "TMPDIR="+s.tmp)
	dir := t.TempDir()
	if built {
		s.sources = dir
		writeModule(t, dir)
	}
	s.generations = map[string]int{}
	for _, row := range rows {
		s.generations[row] = 1
	}
	s.config = filepath.Join(dir, "dsh.yaml")
	s.configure(nil)
	s.run(stderr)
	t.Cleanup(func() {
		if log, err := os.ReadFile(stderr.Name()); err == nil && t.Failed() {
			t.Logf("%.20000s", log)
		}
	})
	return s
}

func (s *storm) run(stderr *os.File) {
	args := []string{"run", "-c", s.config}
	if s.sources != "" {
		args = append(args, "--dev")
	}
	s.client = start(s.t, stderr, s.env, s.program, args...)
}

// configure writes the configuration, with a variable in the environment of each row that decides nothing.
func (s *storm) configure(generations map[string]int) {
	s.t.Helper()
	var yaml strings.Builder
	yaml.WriteString("plugins:\n")
	for _, row := range rows {
		program := "plugin: " + plugin(row)
		if s.sources != "" {
			program = "source: ./" + row
		}
		fmt.Fprintf(&yaml, "  - {id: %s, %s, env: {STORM: \"%d\"}}\n", row, program, generations[row])
	}
	if err := os.WriteFile(s.config, []byte(yaml.String()), 0o600); err != nil {
		s.t.Error(err)
	}
}

// plugin is the plugin of a row.
func plugin(row string) string {
	switch row {
	case "bash":
		return "bash-local"
	case "llm":
		return "llm-shell"
	}
	return row
}

// writeModule writes a module with a program for each row, of the plugin as it is here.
func writeModule(t *testing.T, dir string) {
	t.Helper()
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" {
			_, requirements, _ := strings.Cut(string(text), "\n")
			text = []byte("module example.com/storm\n" + requirements + "\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n")
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows {
		if err := os.Mkdir(filepath.Join(dir, row), 0o700); err != nil {
			t.Fatal(err)
		}
		writeProgram(t, dir, row, 0)
	}
}

const module = "github.com/dsh-go/dsh"

// writeProgram writes the nth version of a row's program.
func writeProgram(t testing.TB, dir, row string, version int) {
	t.Helper()
	text := fmt.Sprintf(`package main

import (
	"os"

	plugin "%s/plugins/%s"
	"%s/sdk"
)

const version = "%d"

func main() {
	os.Setenv("STORM_VERSION", version)
	sdk.Serve(plugin.Plugin())
}
`, module, plugin(row), module, version)
	if err := os.WriteFile(filepath.Join(dir, row, "main.go"), []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}

// rebuild saves another version of a row's program and waits until it serves.
func (s *storm) rebuild(row string, version int) {
	writeProgram(s.t, s.sources, row, version)
	s.serves(row)
}

// change changes the configuration of a row and waits until it is in force.
func (s *storm) change(row string, changes map[string]int) {
	changes[row]++
	s.configure(changes)
	s.serves(row)
}

// serves waits until the row has been reloaded once more.
func (s *storm) serves(row string) {
	s.generations[row]++
	want := fmt.Sprintf("reloaded: row=%s generation=%d ", row, s.generations[row])
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for {
		log, err := os.ReadFile(s.client.stderr.Name())
		if err != nil {
			s.t.Error(err)
		}
		if strings.Contains(string(log), want) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("%s is not in force", want)
			return
		}
		<-tick.C
	}
}

// reload asks the host for a reload, as a person would.
func (s *storm) reload(row string) {
	cmd := exec.Command(s.program, "reload", row)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Errorf("dsh reload %s: %v\n%s", row, err, out)
	}
	s.serves(row)
}

// work is what one session does until the storm is over: commands, background tasks, cancels, all checked to the letter.
func (s *storm) work(number int) {
	random := rand.New(rand.NewPCG(*seed, uint64(number)))
	session := s.client.newSession(s.t.TempDir())
	for n := 0; !s.over.Load(); n++ {
		mark := fmt.Sprintf("s%dn%d", number, n)
		switch random.IntN(10) {
		case 0, 1:
			s.cancelled(session, mark, time.Duration(random.IntN(200))*time.Millisecond)
		case 2, 3:
			s.task(session, mark)
		default:
			s.command(session, mark, random.IntN(200))
		}
	}
}

func (s *storm) command(session *session, mark string, ms int) {
	s.prompts.Add(1)
	got := s.client.prompt(session, fmt.Sprintf("echo %s-1; sleep 0.%03d; echo %s-2; exit 3", mark, ms, mark))()
	if want := mark + "-1\n" + mark + "-2\n"; got.stop != "end_turn" || got.output != want || got.cards != 1 || got.exits != 1 ||
		got.status != "completed" || !strings.Contains(got.answer, "3") {
		s.t.Errorf("%s: got %+v, want the output %q once", mark, got, want)
	}
}

func (s *storm) cancelled(session *session, mark string, after time.Duration) {
	s.cancels.Add(1)
	end := s.client.prompt(session, fmt.Sprintf("echo %s; sleep 30; echo never", mark))
	timer := time.NewTimer(after)
	<-timer.C
	s.client.notify("session/cancel", fmt.Sprintf(`{"sessionId":%q}`, session.id))
	got := end()
	if got.stop != "cancelled" || strings.Contains(got.output, "never") || got.cards > 1 || got.cards != got.exits ||
		got.cards == 1 && got.status != "failed" {
		s.t.Errorf("%s, cancelled: got %+v", mark, got)
	}
}

// task starts a task, reads all of it, and sees that it is over.
func (s *storm) task(session *session, mark string) {
	s.tasks.Add(1)
	got := s.client.prompt(session, fmt.Sprintf(`bash {"command":"echo %s-1; sleep 0.2; echo %s-2","description":"A task","run_in_background":true}`, mark, mark))()
	_, rest, ok := strings.Cut(got.content, "started background task ")
	if !ok {
		s.t.Errorf("%s: a task was not started: %+v", mark, got)
		return
	}
	id := strings.Fields(rest)[0]
	var output strings.Builder
	for deadline := time.Now().Add(30 * time.Second); ; {
		got = s.client.prompt(session, fmt.Sprintf(`bash_output {"task_id":%q}`, id))()
		text := strings.TrimSuffix(strings.TrimPrefix(got.content, "```console\n"), "\n```")
		body, status, _ := strings.Cut(text, "[status: ")
		output.WriteString(strings.TrimSuffix(body, "(no new output)\n"))
		if strings.HasPrefix(status, "completed, exit code: 0]") {
			break
		}
		if !strings.HasPrefix(status, "running]") || time.Now().After(deadline) {
			s.t.Errorf("%s: task %s: %+v", mark, id, got)
			return
		}
	}
	if want := mark + "-1\n" + mark + "-2\n"; output.String() != want {
		s.t.Errorf("%s: task %s printed %q, want %q", mark, id, output.String(), want)
	}
}

func TestNothingIsLostInAReloadStorm(t *testing.T) {
	s := begin(t, true)
	var working sync.WaitGroup
	for n := range *sessions {
		working.Go(func() { s.work(n) })
	}
	changes := map[string]int{}
	for cycle := range *cycles {
		for _, row := range rows {
			s.rebuild(row, cycle+1)
			if cycle%2 == 0 {
				s.change(row, changes)
			} else {
				s.reload(row)
			}
		}
	}
	s.over.Store(true)
	working.Wait()
	s.onlyTheNewestAreLeft()
	s.client.stop()
	s.reportHeld()
	t.Logf("%d rebuilds and %d other reloads; %d commands, %d cancels, %d tasks", *cycles*len(rows), *cycles*len(rows), s.prompts.Load(), s.cancels.Load(), s.tasks.Load())
}

// reportHeld tells for how long the reloads of each row have held calls.
func (s *storm) reportHeld() {
	log, err := os.ReadFile(s.client.stderr.Name())
	if err != nil {
		s.t.Error(err)
	}
	held := map[string][]time.Duration{}
	for _, m := range regexp.MustCompile(`reloaded: row=(\S+) .*held=(\S+)`).FindAllSubmatch(log, -1) {
		d, err := time.ParseDuration(string(m[2]))
		if err != nil {
			s.t.Error(err)
		}
		held[string(m[1])] = append(held[string(m[1])], d)
	}
	for _, row := range rows {
		if d := held[row]; len(d) > 0 {
			slices.Sort(d)
			s.t.Logf("%s: %d reloads held calls for %v at the median, %v at the 99th percentile, %v at most", row, len(d), d[len(d)/2], d[len(d)*99/100], d[len(d)-1])
		}
	}
}

// onlyTheNewestAreLeft waits until every instance that was replaced has gone, as nothing of its work is left.
func (s *storm) onlyTheNewestAreLeft() {
	s.t.Helper()
	most := 1 + len(rows) + 1 // the host, the plugins, and the guard of the executor
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		left := s.processes()
		if len(left) <= most {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("%d processes are left, of them %d too many", len(left), len(left)-most)
			for _, p := range left {
				s.t.Logf("%d %q", p.pid, p.line)
			}
			ps := exec.Command(s.program, "ps")
			ps.Env = s.env
			rows, err := ps.CombinedOutput()
			s.t.Logf("%s%v", rows, err)
			return
		}
	}
}
