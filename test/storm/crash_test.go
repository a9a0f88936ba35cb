package storm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// killsInRound is fewer than the crashes in a minute that make a row fail.
const killsInRound = 4

// crashes is a storm of processes that are killed: each round is a host of its own, on the files that the last one left.
type crashes struct {
	*storm
	random *rand.Rand
	cwd    string
	known  []string // sessions
	kills  int
}

func TestNothingIsLeftOfACrashStorm(t *testing.T) {
	s := &crashes{storm: begin(t, false), random: rand.New(rand.NewPCG(*seed, 0)), cwd: t.TempDir()}
	for round := range *cycles {
		if round > 0 {
			s.run(s.client.stderr)
		}
		s.round(round%2 == 0)
	}
	s.run(s.client.stderr)
	s.loadAll()
	s.client.stop()
	s.nothingLeft()
	if left, _ := filepath.Glob(filepath.Join(s.runtime, "dsh-*", "*")); len(left) > 0 {
		t.Errorf("the last host left %v", left)
	}
	t.Logf("%d plugins and %d hosts killed, %d prompts, %d sessions", s.kills, (*cycles+1)/2, s.prompts.Load(), len(s.known))
}

// round finds all sessions as they were, adds some, and kills plugins while all of them work: at last the host, or it is told to stop.
func (s *crashes) round(killHost bool) {
	working := s.loadAll()
	for range 2 {
		session := s.client.newSession(s.cwd)
		s.known = append(s.known, session.id)
		working = append(working, session)
	}
	var all sync.WaitGroup
	over := make(chan struct{})
	for n, session := range working {
		all.Go(func() { s.keepBusy(session, n, over) })
	}
	for range killsInRound {
		pause := time.NewTimer(time.Duration(s.random.IntN(300)) * time.Millisecond)
		<-pause.C
		if pids := s.plugins(); len(pids) > 0 {
			s.kills++
			_ = syscall.Kill(pids[s.random.IntN(len(pids))], syscall.SIGKILL)
		}
	}
	close(over)
	if killHost {
		_ = s.client.cmd.Process.Kill()
		all.Wait()
		s.client.read.Wait()
		_ = s.client.cmd.Wait()
	} else {
		all.Wait()
		s.client.stop()
	}
	s.nothingLeft()
}

// loadAll loads every session: its log is whole, whatever happened to who wrote it, and it takes a prompt.
func (s *crashes) loadAll() (loaded []*session) {
	s.t.Helper()
	for _, id := range s.known {
		session := &session{id: id, inTurn: true}
		s.client.mu.Lock()
		s.client.sessions[id] = session
		s.client.mu.Unlock()
		f := s.client.request("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, id, s.cwd))
		if f.Error != nil {
			s.t.Errorf("load %s: %s", id, f.Error.Message)
			continue
		}
		loaded = append(loaded, session)
		if got := s.client.prompt(session, "echo alive")(); got.stop != "end_turn" || got.output != "alive\n" || got.status != "completed" {
			s.t.Errorf("session %s after a crash: %+v", id, got)
		}
	}
	return loaded
}

// keepBusy prompts until the storm is over, whatever comes of it: commands, and tasks that would outlive their host.
func (s *crashes) keepBusy(session *session, number int, over <-chan struct{}) {
	random := rand.New(rand.NewPCG(*seed, uint64(number)+1))
	for {
		select {
		case <-over:
			return
		default:
		}
		s.prompts.Add(1)
		text := fmt.Sprintf("echo a; sleep 0.%03d; seq 1 20000; (sleep 1000 &); echo b", random.IntN(200))
		if random.IntN(3) == 0 {
			text = `bash {"command":"trap '' TERM; setsid sleep 1000 & sleep 1000","description":"A task","run_in_background":true}`
		}
		if got := s.client.prompt(session, text)(); got.failure == "the connection ended" {
			return
		}
	}
}

// plugins are the plugin processes of the host.
func (s *crashes) plugins() (pids []int) {
	for _, p := range s.processes() {
		if bytes.Contains(p.line, []byte("serve-plugin")) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// nothingLeft gives what is dying five seconds.
func (s *crashes) nothingLeft() {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(5 * time.Second)
	var left []string
	for {
		left = nil
		for _, p := range s.processes() {
			left = append(left, fmt.Sprintf("%d %s", p.pid, bytes.ReplaceAll(p.line, []byte{0}, []byte{' '})))
		}
		spills, _ := filepath.Glob(filepath.Join(s.tmp, "dsh-bash-*"))
		left = append(left, spills...)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		<-tick.C
	}
	s.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	for _, p := range s.processes() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}
