// Package stdio serves the host's stdin and stdout as the seam "stdio": leased to one plugin at a time, line by line, each until it is dealt with.
package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/stdiov1"
)

const (
	// maxLine limits a line of stdin, in bytes.
	maxLine = 64 << 20
	// maxPending limits the lines that are read and neither taken nor dealt with: this many, or this many bytes. Then stdin waits.
	maxPending      = 1024
	maxPendingBytes = 2 * maxLine
)

// Server leases a stdin and a stdout. One goroutine reads stdin; mu guards what it shares with the lease.
type Server struct {
	stdiov1.UnimplementedStdioServer
	stdout io.Writer
	lease  chan struct{} // holds one token: whoever has it is the lessee

	mu           sync.Mutex
	pending      []*stdiov1.LeaseResponse_Line // read, neither taken nor dealt with
	pendingBytes int
	taken        map[uint64]struct{} // lines that are taken and not dealt with
	changed      chan struct{}       // closed and replaced at each change
	written      uint64              // number of the last write that stdout took
	writeErr     error

	ended       chan struct{} // closed when stdin has ended
	settled     chan struct{}
	settledOnce sync.Once
}

// New returns a server that reads stdin once Run is called.
func New(stdout io.Writer) *Server {
	s := &Server{
		stdout: stdout, lease: make(chan struct{}, 1), changed: make(chan struct{}), taken: map[uint64]struct{}{},
		ended: make(chan struct{}), settled: make(chan struct{}),
	}
	s.lease <- struct{}{}
	return s
}

// Ended is closed when stdin has been read to its end.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Settled is closed when there is nothing left to serve: stdin has ended and the lessee has settled everything, or stdout is broken.
func (s *Server) Settled() <-chan struct{} { return s.settled }

func (s *Server) settle() { s.settledOnce.Do(func() { close(s.settled) }) }

// signal wakes everyone who waits for a change. mu is held.
func (s *Server) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Run reads stdin until its end. It stops reading while too many lines are pending.
func (s *Server) Run(ctx context.Context, stdin io.Reader) {
	lines := newLineReader(stdin, maxLine)
	for number := uint64(1); ; number++ {
		data, oversized, err := lines.next()
		if err != nil && len(data) == 0 && oversized == 0 {
			break
		}
		if !s.add(ctx, &stdiov1.LeaseResponse_Line{Number: number, Data: data, Oversized: oversized}) {
			return
		}
		if err != nil {
			break
		}
	}
	close(s.ended)
}

func (s *Server) add(ctx context.Context, line *stdiov1.LeaseResponse_Line) bool {
	s.mu.Lock()
	for len(s.pending) >= maxPending || s.pendingBytes > maxPendingBytes {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
		s.mu.Lock()
	}
	s.pending = append(s.pending, line)
	s.pendingBytes += len(line.GetData())
	s.signal()
	s.mu.Unlock()
	return true
}

// Lease implements stdiov1.StdioServer.
func (s *Server) Lease(stream grpc.BidiStreamingServer[stdiov1.LeaseRequest, stdiov1.LeaseResponse]) error {
	select {
	case <-s.lease:
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
	defer func() { s.lease <- struct{}{} }()
	l := &lessee{server: s, stream: stream}
	err := l.send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_Opened_{Opened: s.opened()}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		l.deliver(ctx)
	}()
	err = l.receive()
	cancel()
	<-delivered
	return err
}

// opened is where the lease before has come to.
func (s *Server) opened() *stdiov1.LeaseResponse_Opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := slices.Collect(maps.Keys(s.taken))
	for _, line := range s.pending {
		due = append(due, line.GetNumber())
	}
	slices.Sort(due)
	return &stdiov1.LeaseResponse_Opened{Written: s.written, Due: due}
}

// lessee is one lease: one goroutine delivers lines, the handler's receives acknowledgements and writes.
type lessee struct {
	server *Server
	sendMu sync.Mutex
	stream grpc.BidiStreamingServer[stdiov1.LeaseRequest, stdiov1.LeaseResponse]
}

func (l *lessee) send(r *stdiov1.LeaseResponse) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	return l.stream.Send(r)
}

// deliver sends the lines that are pending, then those that come, then the end.
func (l *lessee) deliver(ctx context.Context) {
	s := l.server
	for last := uint64(0); ; {
		s.mu.Lock()
		next := s.after(last)
		changed := s.changed
		s.mu.Unlock()
		if next != nil {
			last = next.GetNumber()
			if l.send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_Line_{Line: next}}) != nil {
				return
			}
			continue
		}
		select { // the end of stdin comes after its last line
		case <-changed:
		case <-s.ended:
			if s.hasAfter(last) {
				continue
			}
			_ = l.send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_End_{End: &stdiov1.LeaseResponse_End{}}})
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) hasAfter(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after(number) != nil
}

// after returns the first pending line above a number; nil: there is none yet. mu is held.
func (s *Server) after(number uint64) *stdiov1.LeaseResponse_Line {
	if i, _ := s.find(number + 1); i < len(s.pending) {
		return s.pending[i]
	}
	return nil
}

// find returns where the pending line of a number is, or would be. mu is held.
func (s *Server) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(s.pending, number, func(l *stdiov1.LeaseResponse_Line, n uint64) int { return cmp.Compare(l.GetNumber(), n) })
}

// drop forgets a pending line. mu is held.
func (s *Server) drop(number uint64) bool {
	i, pending := s.find(number)
	if pending {
		s.pendingBytes -= len(s.pending[i].GetData())
		s.pending = slices.Delete(s.pending, i, i+1)
	}
	return pending
}

func (l *lessee) receive() error {
	s := l.server
	for {
		request, err := l.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch r := request.GetRequest().(type) {
		case *stdiov1.LeaseRequest_Ack_:
			s.ack(r.Ack)
		case *stdiov1.LeaseRequest_Write_:
			if err := s.write(r.Write); err != nil {
				return status.Errorf(codes.Aborted, "write stdout: %v", err)
			}
			if err := l.send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_Written{Written: r.Write.GetNumber()}}); err != nil {
				return err
			}
		case *stdiov1.LeaseRequest_Done_:
			s.settle()
		}
	}
}

func (s *Server) ack(a *stdiov1.LeaseRequest_Ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, number := range a.GetTaken() {
		if s.drop(number) {
			s.taken[number] = struct{}{}
		}
	}
	for _, number := range a.GetLines() {
		s.drop(number)
		delete(s.taken, number)
	}
	s.signal()
}

// write puts a frame on stdout. Only the lessee writes; a broken stdout settles everything, for nobody is left to talk to.
func (s *Server) write(w *stdiov1.LeaseRequest_Write) error {
	s.mu.Lock()
	written, err := s.written, s.writeErr
	s.mu.Unlock()
	if err != nil || w.GetNumber() <= written {
		return err
	}
	if _, err = s.stdout.Write(w.GetData()); err != nil {
		err = fmt.Errorf("%w; is the client gone?", err)
		s.settle()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written, s.writeErr = w.GetNumber(), err
	if w.GetAnswers() > 0 {
		s.drop(w.GetAnswers())
		delete(s.taken, w.GetAnswers())
		s.signal()
	}
	return err
}
