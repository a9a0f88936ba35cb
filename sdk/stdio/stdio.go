// Package stdio is the seam of the host's stdin and stdout: the lease that one plugin at a time holds on them.
//
// Lines come in order and are acknowledged; a line that is not acknowledged when the lease ends goes to the next lessee.
// Frames go to stdout whole, in the order of their writes, each once: they are numbered, so that what a lease leaves unwritten can be
// written again under the next one.
//
// The receiving side never waits for the writing side. A lessee that stops taking lines still learns what stdout has taken; one
// that is held back by a full stdout still gets its lines. The host sends no more lines than it keeps unacknowledged, which
// bounds what a lease holds of them.
package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/stdiov1"
)

// Seam is what a plugin provides or injects.
var Seam = sdk.Seam{Name: "stdio", Service: "dsh.stdio.v1.Stdio"}

// A write waits while stdout has not taken this much of what was written before.
const (
	maxUnwrittenBytes  = 256 << 10
	maxUnwrittenFrames = 1024
)

// releaseLimit is how long the host has to end a lease that was given up.
const releaseLimit = time.Second

// ErrReleased is what the methods of a lease return once it has been given up.
var ErrReleased = errors.New("the lease of stdin and stdout has been given up")

// Line is one line of stdin.
type Line struct {
	// Number counts from 1, through all leases.
	Number uint64
	// Data is the line without its newline; empty when the line was oversized.
	Data []byte
	// Oversized is the size of a line that was too long and has been skipped, else 0.
	Oversized uint64
}

// Frame is one write to stdout.
type Frame struct {
	Number uint64 `json:"number"`
	Data   []byte `json:"data"`
}

// Lease holds the host's stdin and stdout. Its methods may be called from any goroutine, Next from one at a time.
//
// Two goroutines belong to it: one receives and never waits, one sends. Both end with the stream.
type Lease struct {
	stream grpc.BidiStreamingClient[stdiov1.LeaseRequest, stdiov1.LeaseResponse]
	end    context.CancelFunc
	both   sync.WaitGroup
	over   chan struct{} // closed when the stream has ended

	turn    chan struct{} // one writer at a time, in the order they came
	room    chan struct{} // stdout has taken something
	arrived chan struct{} // a line, the end of input
	due     chan struct{} // there is something to send

	mu        sync.Mutex
	lines     []Line
	ended     bool  // no line will follow
	err       error // why the stream ended
	released  bool
	lifted    bool // writes do not wait
	unwritten []Frame
	bytes     int // of unwritten
	sent      int // how many of unwritten have gone to the host
	last      uint64
	acked     uint64
	ackDue    bool
	doneDue   bool
	flushing  []flush
}

type flush struct {
	number uint64
	done   chan struct{}
}

// Open takes the lease; it waits until the one before has ended. unwritten is what that one left, see [Lease.Release]; what
// stdout has not taken of it is written first. The lease ends with ctx.
func Open(ctx context.Context, conn grpc.ClientConnInterface, unwritten []Frame) (*Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := stdiov1.NewStdioClient(conn).Lease(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("lease stdin and stdout: %w", err)
	}
	first, err := stream.Recv()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("lease stdin and stdout: %w", err)
	}
	if first.GetOpened() == nil {
		cancel()
		return nil, fmt.Errorf("lease stdin and stdout: the host sent %T before the lease was opened", first.GetEvent())
	}
	l := &Lease{
		stream: stream, end: cancel, over: make(chan struct{}),
		turn: make(chan struct{}, 1), room: make(chan struct{}, 1), arrived: make(chan struct{}, 1), due: make(chan struct{}, 1),
		last: first.GetOpened().GetWritten(),
	}
	for _, f := range unwritten {
		if f.Number > l.last {
			l.unwritten = append(l.unwritten, f)
			l.bytes += len(f.Data)
			l.last = f.Number
		}
	}
	signal(l.due)
	l.both.Go(l.receive)
	l.both.Go(l.send)
	return l, nil
}

// Next returns the next line. It returns [io.EOF] when stdin has ended.
func (l *Lease) Next(ctx context.Context) (Line, error) {
	for {
		line, ok, err := l.take()
		if ok || err != nil {
			return line, err
		}
		select {
		case <-l.arrived:
		case <-l.over:
			if line, ok, err := l.take(); ok || err != nil {
				return line, err
			}
			return Line{}, l.why()
		case <-ctx.Done():
			return Line{}, context.Cause(ctx)
		}
	}
}

func (l *Lease) take() (line Line, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.released:
		return Line{}, false, ErrReleased
	case len(l.lines) > 0:
		line, l.lines[0] = l.lines[0], Line{}
		l.lines = l.lines[1:]
		return line, true, nil
	case l.ended:
		return Line{}, false, io.EOF
	}
	return Line{}, false, nil
}

// Ack says that all lines up to a number are dealt with.
func (l *Lease) Ack(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number <= l.acked {
		return
	}
	l.acked, l.ackDue = number, true
	signal(l.due)
}

// Write queues frames for stdout, all of them or, when it returns an error, none. It waits while stdout is behind; waiting writers
// have their turn in the order in which they came.
func (l *Lease) Write(ctx context.Context, frames ...[]byte) error {
	select {
	case l.turn <- struct{}{}:
	case <-l.over:
		return l.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		queued, err := l.queue(frames)
		if queued || err != nil {
			return err
		}
		select {
		case <-l.room:
		case <-l.over:
			return l.why()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *Lease) queue(frames [][]byte) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return false, ErrReleased
	}
	if !l.lifted && (l.bytes >= maxUnwrittenBytes || len(l.unwritten) >= maxUnwrittenFrames) {
		return false, nil
	}
	for _, data := range frames {
		l.last++
		l.unwritten = append(l.unwritten, Frame{l.last, data})
		l.bytes += len(data)
	}
	signal(l.due)
	return true, nil
}

// Lift lets writes wait no more, for the last ones before [Lease.Release]: what stdout does not take goes to the next lease.
func (l *Lease) Lift() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lifted = true
	signal(l.room)
}

// Flush waits until stdout has taken everything written so far.
func (l *Lease) Flush(ctx context.Context) error {
	l.mu.Lock()
	if len(l.unwritten) == 0 {
		l.mu.Unlock()
		return nil
	}
	f := flush{l.last, make(chan struct{})}
	l.flushing = append(l.flushing, f)
	l.mu.Unlock()
	select {
	case <-f.done:
		return nil
	case <-l.over:
		return l.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done tells the host that everything is settled after the end of input: it may stop.
func (l *Lease) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doneDue = true
	signal(l.due)
}

// Release gives the lease up and returns the frames that stdout is not known to have taken, for [Open] of the next lease.
func (l *Lease) Release() []Frame {
	l.mu.Lock()
	l.released = true
	signal(l.due)
	signal(l.arrived)
	signal(l.room)
	l.mu.Unlock()
	limit := time.NewTimer(releaseLimit)
	defer limit.Stop()
	select {
	case <-l.over:
	case <-limit.C:
	}
	l.end()
	l.both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritten
}

func (l *Lease) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return ErrReleased
	}
	return l.err
}

// receive owns the receiving side of the stream.
func (l *Lease) receive() {
	defer l.end() // frees the sending side
	defer close(l.over)
	for {
		message, err := l.stream.Recv()
		l.mu.Lock()
		if err != nil {
			l.err = fmt.Errorf("the lease of stdin and stdout has ended: %w", err)
			l.mu.Unlock()
			return
		}
		switch e := message.GetEvent().(type) {
		case *stdiov1.LeaseResponse_Line_:
			l.lines = append(l.lines, Line{e.Line.GetNumber(), e.Line.GetData(), e.Line.GetOversized()})
			signal(l.arrived)
		case *stdiov1.LeaseResponse_End_:
			l.ended = true
			signal(l.arrived)
		case *stdiov1.LeaseResponse_Written:
			l.written(e.Written)
		}
		l.mu.Unlock()
	}
}

// written forgets what stdout has taken. mu is held.
func (l *Lease) written(number uint64) {
	taken := 0
	for taken < len(l.unwritten) && l.unwritten[taken].Number <= number {
		l.bytes -= len(l.unwritten[taken].Data)
		l.unwritten[taken] = Frame{}
		taken++
	}
	l.unwritten = l.unwritten[taken:]
	l.sent = max(0, l.sent-taken)
	waiting := l.flushing[:0]
	for _, f := range l.flushing {
		if f.number <= number {
			close(f.done)
		} else {
			waiting = append(waiting, f)
		}
	}
	l.flushing = waiting
	signal(l.room)
}

// send owns the sending side of the stream.
func (l *Lease) send() {
	for {
		select {
		case <-l.due:
		case <-l.over:
			return
		}
		for {
			message, last := l.message()
			if last {
				_ = l.stream.CloseSend() // the end of the stream is seen by receive
				return
			}
			if message == nil {
				break
			}
			if l.stream.Send(message) != nil {
				return // receive has the reason
			}
		}
	}
}

// message is the next one to send: nil for none now, last when nothing will follow.
func (l *Lease) message() (message *stdiov1.LeaseRequest, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ackDue:
		l.ackDue = false
		return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Ack{Ack: l.acked}}, false
	case l.sent < len(l.unwritten) && !l.released:
		f := l.unwritten[l.sent]
		l.sent++
		return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Write_{
			Write: &stdiov1.LeaseRequest_Write{Number: f.Number, Data: f.Data},
		}}, false
	case l.doneDue:
		l.doneDue = false
		return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Done_{Done: &stdiov1.LeaseRequest_Done{}}}, false
	}
	return nil, l.released
}

// signal wakes the one who waits, now or next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
