// Package stdio is the seam of the host's stdin and stdout: the lease that one plugin at a time holds on them.
//
// Lines come in order, and what is not dealt with when the lease ends comes to the next lessee. A line is dealt with when it is
// acknowledged or, in one step, when its answer is on stdout: whenever a lessee dies, each answer is either written or due, and never
// both. A lessee that can answer a line without seeing it again says that it has taken it; the next one is told that it is due.
// Frames go to stdout whole, in the order of their writes, each once: they are numbered, so that what a lease leaves unwritten can be
// written again under the next one.
//
// The receiving side never waits for the writing side. A lessee that stops taking lines still learns what stdout has taken; one
// that is held back by a full stdout still gets its lines. The host sends no more lines than it keeps, which bounds what a
// lease holds of them.
package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	// Answers is the line that the data answers, 0 for none.
	Answers uint64 `json:"answers,omitempty"`
}

// Lease holds the host's stdin and stdout. Its methods may be called from any goroutine, Next from one at a time.
//
// Two goroutines belong to it: one receives and never waits, one sends. Both end with the stream.
type Lease struct {
	stream grpc.BidiStreamingClient[stdiov1.LeaseRequest, stdiov1.LeaseResponse]
	end    context.CancelFunc
	both   sync.WaitGroup
	over   chan struct{} // closed when the stream has ended

	turn     chan struct{} // one writer at a time, in the order they came
	room     chan struct{} // stdout has taken something
	arrived  chan struct{} // a line, the end of input
	due      chan struct{} // there is something to send
	answered []uint64      // the lines that the frames of the lease before answer
	before   []uint64      // the lines that were not dealt with when the lease began, in their order

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
	ack       *stdiov1.LeaseRequest_Ack // to be sent; nil: none
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
		last: first.GetOpened().GetWritten(), before: first.GetOpened().GetDue(),
	}
	for _, f := range unwritten {
		if f.Answers > 0 { // the host knows when it is written, and may send the line before
			l.answered = append(l.answered, f.Answers)
		}
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
		line, ok, err := l.pop()
		if ok || err != nil {
			return line, err
		}
		select {
		case <-l.arrived:
		case <-l.over:
			if line, ok, err := l.pop(); ok || err != nil {
				return line, err
			}
			return Line{}, l.why()
		case <-ctx.Done():
			return Line{}, context.Cause(ctx)
		}
	}
}

func (l *Lease) pop() (line Line, ok bool, err error) {
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

// Due tells whether a line was not dealt with when the lease began.
func (l *Lease) Due(line uint64) bool {
	_, due := slices.BinarySearch(l.before, line)
	return due
}

// Ack says that a line is dealt with and has no answer.
func (l *Lease) Ack(line uint64) {
	l.acknowledge(func(a *stdiov1.LeaseRequest_Ack) { a.Lines = append(a.Lines, line) })
}

// Take says that a line need not come again. Its answer stays due, until [Lease.Answer].
func (l *Lease) Take(line uint64) {
	l.acknowledge(func(a *stdiov1.LeaseRequest_Ack) { a.Taken = append(a.Taken, line) })
}

func (l *Lease) acknowledge(add func(*stdiov1.LeaseRequest_Ack)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ack == nil {
		l.ack = &stdiov1.LeaseRequest_Ack{}
	}
	add(l.ack)
	signal(l.due)
}

// Write queues frames for stdout, all of them or, when it returns an error, none. It waits while stdout is behind; waiting writers
// have their turn in the order in which they came.
func (l *Lease) Write(ctx context.Context, frames ...[]byte) error {
	var numberless []Frame
	for _, data := range frames {
		numberless = append(numberless, Frame{Data: data})
	}
	return l.write(ctx, numberless)
}

// Answer is [Lease.Write] of a frame that answers a line.
func (l *Lease) Answer(ctx context.Context, line uint64, frame []byte) error {
	return l.write(ctx, []Frame{{Data: frame, Answers: line}})
}

// Answering tells whether the answer to a line waits for stdout.
func (l *Lease) Answering(line uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.unwritten, func(f Frame) bool { return f.Answers == line })
}

func (l *Lease) write(ctx context.Context, frames []Frame) error {
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

func (l *Lease) queue(frames []Frame) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return false, ErrReleased
	}
	if !l.lifted && (l.bytes >= maxUnwrittenBytes || len(l.unwritten) >= maxUnwrittenFrames) {
		return false, nil
	}
	for _, f := range frames {
		l.last++
		f.Number = l.last
		l.unwritten = append(l.unwritten, f)
		l.bytes += len(f.Data)
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
			if slices.Contains(l.answered, e.Line.GetNumber()) {
				break
			}
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
	case l.ack != nil:
		ack := l.ack
		l.ack = nil
		return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Ack_{Ack: ack}}, false
	case l.sent < len(l.unwritten) && !l.released:
		f := l.unwritten[l.sent]
		l.sent++
		return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Write_{
			Write: &stdiov1.LeaseRequest_Write{Number: f.Number, Data: f.Data, Answers: f.Answers},
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
