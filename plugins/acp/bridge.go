package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/controlv1"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/stdio"
	"github.com/dsh-go/dsh/sdk/tool"
)

const (
	// settleLimit is how long cancelled turns have to settle when the editor has gone or the host stops: the process has a second.
	settleLimit = 650 * time.Millisecond
	// handoverLimit is how long requests in flight may take when a successor waits.
	handoverLimit = 3 * time.Second
	// lastWords is what the frames of the last answers have to reach stdout.
	lastWords = 100 * time.Millisecond

	maxInFlight = 4096 // requests without an answer
	maxReplies  = 1024 // answers of the reader that wait for stdout
	maxMailbox  = 64   // requests that wait for their session

	maxPromptBytes = 16 << 20 // of a prompt's text: a session has to keep it, and to send it to its model again and again
)

var (
	errForced   = errors.New("the turn did not settle in time")
	errHandover = errors.New("the turn is handed over")
	errReplaced = errors.New("the editor bridge was replaced before the request was done")
	errEnding   = errors.New("the editor bridge stops")
)

// bridge is the connection to one editor. mu guards what the reader, the mailboxes and the wind-down share; it is held for a few
// instructions at a time, never during I/O.
type bridge struct {
	c    *sdk.Context
	log  hclog.Logger
	info AgentInfo
	// cancelLimit is how long a cancelled turn has to settle before its prompt is answered all the same.
	cancelLimit time.Duration
	agents      *agents.Client
	tools       *tool.Client
	bash        *bash.Client // of an optional seam
	lease       *stdio.Lease
	saved       state    // what the instance before left
	taken       []uint64 // lines of the prompts that the instance before left; the reader's

	out      context.Context // for answers; ends last
	closeOut context.CancelFunc
	work     context.Context // for calls and updates; its cause says why it ended
	stopWork context.CancelCauseFunc

	ending    context.Context // ends when the instance is to wind down
	beginEnd  context.CancelFunc
	inputOver chan struct{}  // closed when the reader has ended
	gone      chan struct{}  // closed when the instance has wound down
	replies   chan func()    // the reader's own answers
	dirty     chan struct{}  // the checkpoint is out of date
	settled   chan struct{}  // fewer requests are in flight
	running   sync.WaitGroup // every goroutine but run

	toolsChanged chan struct{}

	control   controlv1.ControlClient
	mayReload bool

	mu        sync.Mutex
	reason    sdk.RetireReason
	terminals bool
	sessions  map[string]*session
	prompts   map[*prompt]struct{} // without an answer, not handed over
	questions map[string]*question // to the editor, by the key of their id
	offer     offer
	handing   bool // running turns are handed over
	handed    []promptState
	inFlight  int
	answering map[uint64]*answering // by the line of the prompt
	waiting   []chan struct{}       // closed by the next checkpoint
}

func newBridge(c *sdk.Context, config Config) (*bridge, error) {
	if config.CancelLimitMs <= 0 {
		return nil, fmt.Errorf("config: cancelLimitMs must be positive, got %d", config.CancelLimitMs)
	}
	b := &bridge{
		c: c, log: c.Log(), info: config.AgentInfo, cancelLimit: time.Duration(config.CancelLimitMs) * time.Millisecond,
		agents: agents.NewClient(c.Conn()), tools: tool.NewClient(c.Conn()), bash: bash.NewClient(c.Conn()),
		control: controlv1.NewControlClient(c.Conn()), mayReload: config.Reload,
		inputOver: make(chan struct{}), gone: make(chan struct{}), replies: make(chan func(), maxReplies),
		dirty: make(chan struct{}, 1), settled: make(chan struct{}, 1), toolsChanged: make(chan struct{}, 1),
		sessions: map[string]*session{}, prompts: map[*prompt]struct{}{}, questions: map[string]*question{}, answering: map[uint64]*answering{},
	}
	if saved := c.Restored(); len(saved) > 0 {
		if err := json.Unmarshal(saved, &b.saved); err != nil {
			return nil, fmt.Errorf("read the checkpoint: %w", err)
		}
	}
	b.out, b.closeOut = context.WithCancel(context.Background())
	b.work, b.stopWork = context.WithCancelCause(b.out)
	b.ending, b.beginEnd = context.WithCancel(c.Done())
	return b, nil
}

// retire begins the wind-down.
func (b *bridge) retire(reason sdk.RetireReason) {
	b.mu.Lock()
	b.reason = reason
	b.mu.Unlock()
	b.beginEnd()
}

// run is the bridge's life: until the instance retires or ends.
func (b *bridge) run(context.Context) error {
	defer close(b.gone)
	defer b.running.Wait()
	defer b.closeOut()
	defer b.beginEnd()
	lease, err := b.open()
	if err != nil {
		return err
	}
	if lease == nil {
		return nil
	}
	b.lease = lease
	b.restore()
	reading, stopReading := context.WithCancel(b.work)
	defer stopReading()
	b.running.Go(b.reply)
	b.running.Go(b.save)
	b.running.Go(b.keepOffer)
	b.running.Go(func() {
		defer close(b.inputOver)
		b.read(reading)
	})
	select {
	case <-b.inputOver:
		b.settle()
		b.lease.Done()
		<-b.ending.Done()
	case <-b.ending.Done():
		stopReading()
		<-b.inputOver
		b.mu.Lock()
		reload := b.reason == pluginv1.RetireRequest_REASON_RELOAD
		b.mu.Unlock()
		if reload {
			b.handOver()
		} else {
			b.settle()
		}
	}
	return b.leave()
}

// open takes the lease. It returns none when the instance is to end before the lease is free.
func (b *bridge) open() (*stdio.Lease, error) {
	ctx, cancel := context.WithCancel(b.out)
	proceed := context.AfterFunc(b.ending, cancel)
	lease, err := stdio.Open(ctx, b.c.Conn(), b.saved.Unwritten)
	if proceed() {
		return lease, err
	}
	if lease != nil {
		lease.Release()
	}
	return nil, nil
}

// settle cancels what runs, waits until everything is answered, forces what is not, and flushes.
func (b *bridge) settle() {
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	b.mu.Lock()
	for p := range b.prompts {
		b.cancel(p)
	}
	b.mu.Unlock()
	if !b.wait(limit.C) {
		b.mu.Lock()
		for p := range b.prompts {
			p.stop(errForced)
		}
		b.mu.Unlock()
		b.stopWorkSoon()
	}
	flush, cancel := context.WithTimeout(b.out, lastWords)
	defer cancel()
	if err := b.lease.Flush(flush); err != nil {
		b.log.Debug("stdout has not taken the last frames", "error", err)
	}
}

// stopWorkSoon gives forced answers a moment and then ends all other calls.
func (b *bridge) stopWorkSoon() {
	moment := time.NewTimer(lastWords)
	defer moment.Stop()
	if b.wait(moment.C) {
		return
	}
	b.stopWork(errEnding)
	again := time.NewTimer(lastWords)
	defer again.Stop()
	b.wait(again.C)
}

// handOver stops following the turns that run and waits for all other requests.
func (b *bridge) handOver() {
	limit := time.NewTimer(handoverLimit)
	defer limit.Stop()
	b.mu.Lock()
	b.handing = true
	for p := range b.prompts {
		p.handOver()
	}
	b.mu.Unlock()
	if b.wait(limit.C) {
		return
	}
	b.stopWork(errReplaced)
	b.lease.Lift() // what is left is answers; the successor writes those that stdout has no room for
	moment := time.NewTimer(lastWords)
	defer moment.Stop()
	b.wait(moment.C)
}

// wait waits until every request is answered or handed over. It reports whether that is so.
func (b *bridge) wait(limit <-chan time.Time) bool {
	for {
		b.mu.Lock()
		inFlight := b.inFlight
		b.mu.Unlock()
		if inFlight == 0 {
			return true
		}
		select {
		case <-b.settled:
		case <-limit:
			return false
		}
	}
}

// leave gives the lease up and leaves the last checkpoint.
func (b *bridge) leave() error {
	b.stopWork(errEnding)
	unwritten := b.lease.Release()
	b.closeOut()
	b.running.Wait()
	b.mu.Lock()
	last := b.state()
	b.mu.Unlock()
	last.HandedOver, last.Unwritten = true, unwritten
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	return b.checkpoint(ctx, last)
}

// reply writes the reader's own answers.
func (b *bridge) reply() {
	for {
		select {
		case answer := <-b.replies:
			answer()
		case <-b.out.Done():
			return
		}
	}
}

// line makes the line of an update that is made of texts and numbers, which cannot fail.
func line(sessionID string, u update) []byte {
	line, err := jsonrpc.Notify(methodUpdate, updateParams{sessionID, u})
	if err != nil {
		panic(fmt.Sprintf("acp: %v", err))
	}
	return line
}

// frames makes the lines of a session's updates.
func frames(sessionID string, updates []update) ([][]byte, error) {
	var lines [][]byte
	for _, u := range updates {
		line, err := jsonrpc.Notify(methodUpdate, updateParams{sessionID, u})
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}
