// Package storm reloads and crashes plugins while editors work, and looks for what is lost:
//
//	go test ./test/storm                    # a short storm
//	go test ./test/storm -cycles 50 -v      # a long one
package storm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	cycles   = flag.Int("cycles", 3, "reloads of each row")
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
	client  *client
	over    atomic.Bool

	prompts, cancels, tasks atomic.Int64
}

func begin(t *testing.T) *storm {
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
	s.config = filepath.Join(t.TempDir(), "dsh.yaml")
	s.configure(nil)
	s.client = start(t, stderr, s.env, s.program, "run", "-c", s.config)
	t.Cleanup(func() {
		if log, err := os.ReadFile(stderr.Name()); err == nil && t.Failed() {
			t.Logf("%.20000s", log)
		}
	})
	return s
}

// configure writes the configuration, with a variable in the environment of each row that decides nothing.
func (s *storm) configure(generations map[string]int) {
	s.t.Helper()
	var yaml strings.Builder
	yaml.WriteString("plugins:\n")
	for _, row := range rows {
		plugin := map[string]string{"bash": "bash-local", "llm": "llm-shell"}[row]
		if plugin == "" {
			plugin = row
		}
		fmt.Fprintf(&yaml, "  - {id: %s, plugin: %s, env: {STORM: \"%d\"}}\n", row, plugin, generations[row])
	}
	if err := os.WriteFile(s.config, []byte(yaml.String()), 0o600); err != nil {
		s.t.Error(err)
	}
}

// change changes the configuration of a row, for the nth time and after so many reloads, and waits until it is in force.
func (s *storm) change(row string, changes map[string]int, reloads int) {
	changes[row]++
	s.configure(changes)
	if err := s.client.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		s.t.Error(err)
	}
	want := fmt.Sprintf("reloaded: row=%s generation=%d ", row, 1+changes[row]+reloads)
	deadline := time.Now().Add(20 * time.Second)
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
	}
}

// reload asks the host for a reload, as a person would.
func (s *storm) reload(row string) {
	cmd := exec.Command(s.program, "reload", row)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Errorf("dsh reload %s: %v\n%s", row, err, out)
	}
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
	s := begin(t)
	var working sync.WaitGroup
	for n := range *sessions {
		working.Go(func() { s.work(n) })
	}
	changes, reloads := map[string]int{}, 0
	for cycle := range *cycles {
		for _, row := range rows {
			if cycle%2 == 1 {
				s.reload(row)
			} else {
				s.change(row, changes, reloads)
			}
		}
		if cycle%2 == 1 {
			reloads++
		}
	}
	s.over.Store(true)
	working.Wait()
	s.client.stop()
	t.Logf("%d reloads; %d commands, %d cancels, %d tasks", *cycles*len(rows), s.prompts.Load(), s.cancels.Load(), s.tasks.Load())
}
