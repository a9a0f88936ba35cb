package acp_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/api/stdiov1"
)

// fakeStdio is the host's side of the stdio seam with an editor behind it.
type fakeStdio struct {
	stdiov1.UnimplementedStdioServer
	held chan struct{} // the lease

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	pending []*stdiov1.LeaseResponse_Line
	taken   []uint64
	lines   uint64 // received from the editor
	ended   bool
	done    bool
	written uint64
	frames  []string // taken by the editor, not yet by the test
	paused  bool     // the editor does not read
	total   int      // bytes received in writes
	leases  int
	lost    chan struct{} // closed when the lessee's death is to be played
}

func newFakeStdio() *fakeStdio {
	return &fakeStdio{held: make(chan struct{}, 1), changed: make(chan struct{})}
}

// change runs f and wakes everyone who waits.
func (s *fakeStdio) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until ready is true, or stop is closed.
func (s *fakeStdio) await(stop <-chan struct{}, ready func() bool) bool {
	for {
		s.mu.Lock()
		ok, changed := ready(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

// feed is one write of the editor.
func (s *fakeStdio) feed(text []byte) {
	s.change(func() {
		for _, line := range bytes.SplitAfter(text, []byte("\n")) {
			if len(line) > 0 {
				s.lines++
				s.pending = append(s.pending, &stdiov1.LeaseResponse_Line{Number: s.lines, Data: bytes.TrimSuffix(line, []byte("\n"))})
			}
		}
	})
}

func (s *fakeStdio) feedOversized(size uint64) {
	s.change(func() {
		s.lines++
		s.pending = append(s.pending, &stdiov1.LeaseResponse_Line{Number: s.lines, Oversized: size})
	})
}

func (s *fakeStdio) Lease(stream grpc.BidiStreamingServer[stdiov1.LeaseRequest, stdiov1.LeaseResponse]) error {
	stop := stream.Context().Done()
	select {
	case s.held <- struct{}{}:
	case <-stop:
		return stream.Context().Err()
	}
	defer func() { <-s.held }()
	lost := make(chan struct{})
	opened := &stdiov1.LeaseResponse_Opened{}
	s.change(func() {
		s.leases++
		s.lost = lost
		opened.Written, opened.Due = s.written, slices.Clone(s.taken)
		for _, line := range s.pending {
			opened.Due = append(opened.Due, line.GetNumber())
		}
		slices.Sort(opened.Due)
	})
	var sending sync.Mutex
	send := func(r *stdiov1.LeaseResponse) bool {
		sending.Lock()
		defer sending.Unlock()
		return stream.Send(r) == nil
	}
	send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_Opened_{Opened: opened}})
	over := make(chan struct{})
	var delivering sync.WaitGroup
	delivering.Go(func() { s.deliver(over, send) })
	received := make(chan error, 1)
	go func() { received <- s.receive(stream, lost, send) }()
	var err error
	select {
	case err = <-received:
	case <-lost:
		err = errors.New("the lessee is gone")
	}
	close(over)
	delivering.Wait()
	return err
}

func (s *fakeStdio) drop(line uint64) bool {
	before := len(s.pending)
	s.pending = slices.DeleteFunc(s.pending, func(l *stdiov1.LeaseResponse_Line) bool { return l.GetNumber() == line })
	return len(s.pending) < before
}

func (s *fakeStdio) dealtWith(lines ...uint64) {
	for _, line := range lines {
		s.drop(line)
		s.taken = slices.DeleteFunc(s.taken, func(t uint64) bool { return t == line })
	}
}

func (s *fakeStdio) deliver(over <-chan struct{}, send func(*stdiov1.LeaseResponse) bool) {
	for last := uint64(0); ; {
		var next *stdiov1.LeaseResponse_Line
		ok := s.await(over, func() bool {
			next = nil
			for _, line := range s.pending {
				if line.GetNumber() > last {
					next = line
					return true
				}
			}
			return s.ended
		})
		if !ok {
			return
		}
		if next == nil {
			send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_End_{End: &stdiov1.LeaseResponse_End{}}})
			return
		}
		last = next.GetNumber()
		if !send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_Line_{Line: next}}) {
			return
		}
	}
}

func (s *fakeStdio) receive(
	stream grpc.BidiStreamingServer[stdiov1.LeaseRequest, stdiov1.LeaseResponse], lost <-chan struct{}, send func(*stdiov1.LeaseResponse) bool,
) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch r := request.GetRequest().(type) {
		case *stdiov1.LeaseRequest_Ack_:
			s.change(func() {
				for _, line := range r.Ack.GetTaken() {
					if s.drop(line) {
						s.taken = append(s.taken, line)
					}
				}
				s.dealtWith(r.Ack.GetLines()...)
			})
		case *stdiov1.LeaseRequest_Write_:
			s.change(func() { s.total += len(r.Write.GetData()) })
			if !s.await(lost, func() bool { return !s.paused || stream.Context().Err() != nil }) || stream.Context().Err() != nil {
				return errors.New("the lessee is gone")
			}
			s.change(func() {
				if r.Write.GetNumber() > s.written {
					s.written = r.Write.GetNumber()
					s.dealtWith(r.Write.GetAnswers())
					s.frames = append(s.frames, strings.SplitAfter(string(r.Write.GetData()), "\n")...)
					if last := len(s.frames) - 1; s.frames[last] == "" {
						s.frames = s.frames[:last]
					}
				}
			})
			send(&stdiov1.LeaseResponse{Event: &stdiov1.LeaseResponse_Written{Written: r.Write.GetNumber()}})
		case *stdiov1.LeaseRequest_Done_:
			s.change(func() { s.done = true })
		}
	}
}
