package executor

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// The guard is what kills the commands of an executor that was killed itself. It is this program, started again in a session of its
// own with nothing open but a pipe and the ledger. The executor holds the other end of the pipe and never writes to it but to say
// goodbye: the end of the pipe without that is the end of the executor. The ledger is a file without a name, so that it
// needs nobody to keep it: the executor enters the process groups of its commands in it, and only the guard of a dead executor
// ever reads it.

const (
	// envGuard makes this program a guard. Its value is the mark of the executor and the directory of its spill files.
	envGuard = "DSH_EXECUTOR_GUARD"
	// guardPipe and guardLedger are the guard's descriptors.
	guardPipe, guardLedger = 3, 4
	// guardPatience is how long a guard tries to kill what cannot be killed.
	guardPatience = time.Minute
	// goodbyeLimit is how long a guard may take to leave.
	goodbyeLimit = time.Second
)

// An init, because the guard is whatever program serves the executor, a test included: what its main does must not happen again.
func init() {
	if spec := os.Getenv(envGuard); spec != "" {
		mark, dir, _ := strings.Cut(spec, ":")
		guardMain(mark, dir)
		os.Exit(0)
	}
}

func guardMain(mark, spillDir string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	goodbye := make([]byte, 1)
	for {
		n, err := unix.Read(guardPipe, goodbye)
		if err == unix.EINTR {
			continue
		}
		if n > 0 {
			return
		}
		break
	}
	f := &ledgerFamily{marks: mark + "-", listed: readLedger(guardLedger)}
	began := time.Now()
	for poll := firstPoll; time.Since(began) < guardPatience; poll = min(poll*3/2, lastPoll) {
		left := f.members(scanProcesses())
		if len(left) == 0 {
			break
		}
		kill(f, left)
		time.Sleep(poll)
	}
	_ = removeTree(spillDir)
}

// ledgerFamily is what a dead executor left.
type ledgerFamily struct {
	marks  string
	listed map[int]bool
	seen   seen
}

// groups are none: with the executor gone, nothing keeps a number from being used again.
func (f *ledgerFamily) groups() []int { return nil }

func (f *ledgerFamily) members(procs []proc) []proc {
	return f.seen.closure(procs, func(p proc) bool {
		return f.listed[p.group] || f.listed[p.session] || strings.HasPrefix(p.mark, f.marks)
	})
}

// slot is a place in the ledger.
type slot int64

const slotSize = 4

func readLedger(fd int) map[int]bool {
	groups := map[int]bool{}
	buf := make([]byte, 64<<10)
	for offset := int64(0); ; {
		n, err := unix.Pread(fd, buf, offset)
		if err == unix.EINTR {
			continue
		}
		if n < slotSize {
			return groups
		}
		n -= n % slotSize
		for entry := range slices.Chunk(buf[:n], slotSize) {
			if group := binary.NativeEndian.Uint32(entry); group != 0 {
				groups[int(group)] = true
			}
		}
		offset += int64(n)
	}
}

// guard is the executor's side of the guard.
type guard struct {
	spawner *spawner
	log     hclog.Logger
	spec    string
	ledger  *os.File

	mu   sync.Mutex
	free []slot
	size slot // slots in the ledger

	pipe    *os.File      // the end that the executor holds; owned by watch
	closing chan struct{} // closed to end the guard
	watched sync.WaitGroup
}

func startGuard(s *spawner, mark, spillDir string, log hclog.Logger) (*guard, error) {
	ledger, err := newScript("")
	if err != nil {
		return nil, fmt.Errorf("create its ledger: %w", err)
	}
	g := &guard{spawner: s, log: log, spec: mark + ":" + spillDir, ledger: ledger, closing: make(chan struct{})}
	pid, pidFD, err := g.start()
	if err != nil {
		ledger.Close()
		return nil, err
	}
	g.watched.Go(func() { g.watch(pid, pidFD) })
	return g, nil
}

// start starts a guard process.
func (g *guard) start() (pid, pidFD int, err error) {
	var fds [2]int
	if fds, err = openPipe(); err != nil {
		return 0, -1, err
	}
	// The executor writes; the guard reads, and may block.
	if err = unix.SetNonblock(fds[0], false); err != nil {
		return 0, -1, err
	}
	defer unix.Close(fds[0])
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		unix.Close(fds[1])
		return 0, -1, err
	}
	defer null.Close()
	program, err := ownProgram()
	if err != nil {
		unix.Close(fds[1])
		return 0, -1, err
	}
	p := &Process{
		Path: program, Argv: []string{"dsh-guard"}, Dir: "/",
		// GORACE: with the race detector it would take a second to leave.
		Env:  []string{envGuard + "=" + g.spec, "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0"},
		Attr: &syscall.SysProcAttr{Setsid: true},
	}
	pid, pidFD, err = g.spawner.start(p, null.Fd(), null.Fd(), uintptr(fds[0]), g.ledger.Fd())
	if err != nil {
		unix.Close(fds[1])
		return 0, -1, err
	}
	g.pipe = os.NewFile(uintptr(fds[1]), "guard")
	return pid, pidFD, nil
}

// watch starts the guard again when it dies.
func (g *guard) watch(pid, pidFD int) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		ended := make(chan struct{})
		go func() {
			awaitEnd(pid, pidFD)
			close(ended)
		}()
		select {
		case <-g.closing:
			_, _ = g.pipe.Write([]byte{1})
			g.pipe.Close()
			limit := time.NewTimer(goodbyeLimit)
			select {
			case <-ended:
			case <-limit.C:
				_ = unix.Kill(pid, unix.SIGKILL) // it is ours and not reaped: the number is its
				<-ended
			}
			limit.Stop()
			reapChild(pid)
			return
		case <-ended:
		}
		reapChild(pid)
		g.pipe.Close()
		g.log.Warn("the guard of the commands died and is started again")
		for {
			wait := time.NewTimer(pause)
			select {
			case <-g.closing:
				wait.Stop()
				return
			case <-wait.C:
			}
			var err error
			if pid, pidFD, err = g.start(); err == nil {
				break
			}
			g.log.Error("the guard of the commands cannot be started", "error", err)
			pause = min(2*pause, 10*time.Second)
		}
	}
}

// close ends the guard; nothing may run any more.
func (g *guard) close() {
	close(g.closing)
	g.watched.Wait()
	g.ledger.Close()
}

// add enters a process group.
func (g *guard) add(group int) slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.size
	if n := len(g.free); n > 0 {
		s, g.free = g.free[n-1], g.free[:n-1]
	} else {
		g.size++
	}
	g.write(s, group)
	return s
}

// remove strikes out a process group that is empty: its number may become another's.
func (g *guard) remove(s slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.write(s, 0)
	g.free = append(g.free, s)
}

func (g *guard) write(s slot, group int) {
	if _, err := g.ledger.WriteAt(binary.NativeEndian.AppendUint32(nil, uint32(group)), int64(s)*slotSize); err != nil {
		g.log.Error("a process group was not entered in the guard's ledger", "group", group, "error", err)
	}
}
