package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/stdiov1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	request = stdiov1.LeaseRequest
	event   = stdiov1.LeaseResponse
)

// host is the other end: each lease is handed to the test, which answers by hand.
type host struct {
	stdiov1.UnimplementedStdioServer
	leases chan *held
}

type held struct {
	requests chan *request // closed when the lessee has given up
	events   chan *event
	end      chan error
}

func (h *host) Lease(stream grpc.BidiStreamingServer[request, event]) error {
	l := &held{make(chan *request), make(chan *event), make(chan error)}
	ctx := stream.Context()
	select {
	case h.leases <- l:
	case <-ctx.Done():
		return ctx.Err()
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		defer close(l.requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case l.requests <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		select {
		case e := <-l.events:
			if err := stream.Send(e); err != nil {
				return err
			}
		case err := <-l.end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func connect(t *testing.T) (*host, grpc.ClientConnInterface) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dsh")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{leases: make(chan *held)}
	server := grpc.NewServer(api.ServerOptions()...)
	stdiov1.RegisterStdioServer(server, h)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := api.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		serving.Wait()
		os.RemoveAll(dir)
	})
	return h, conn
}

func opened(written uint64) *event {
	return &event{Event: &stdiov1.LeaseResponse_Opened_{Opened: &stdiov1.LeaseResponse_Opened{Written: written}}}
}

func written(number uint64) *event {
	return &event{Event: &stdiov1.LeaseResponse_Written{Written: number}}
}

func line(number uint64, data string) *event {
	return &event{Event: &stdiov1.LeaseResponse_Line_{Line: &stdiov1.LeaseResponse_Line{Number: number, Data: []byte(data)}}}
}

// open takes a lease; the host says that writes up to a number are written.
func open(t *testing.T, h *host, conn grpc.ClientConnInterface, last uint64, unwritten ...Frame) (*Lease, *held) {
	t.Helper()
	var other *held
	var opening sync.WaitGroup
	opening.Go(func() {
		other = <-h.leases
		other.events <- opened(last)
	})
	l, err := Open(t.Context(), conn, unwritten)
	if err != nil {
		t.Fatal(err)
	}
	opening.Wait()
	t.Cleanup(func() { l.Release() })
	return l, other
}

// write takes the next write.
func (h *held) write(t *testing.T) string {
	t.Helper()
	w := (<-h.requests).GetWrite()
	if w == nil {
		t.Fatal("no write")
	}
	return fmt.Sprintf("%d %s", w.GetNumber(), w.GetData())
}

func TestLinesComeInOrderAndThenTheEnd(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	other.events <- line(1, "one")
	other.events <- line(2, "")
	other.events <- &event{Event: &stdiov1.LeaseResponse_Line_{Line: &stdiov1.LeaseResponse_Line{Number: 3, Oversized: 70 << 20}}}
	other.events <- &event{Event: &stdiov1.LeaseResponse_End_{End: &stdiov1.LeaseResponse_End{}}}
	for i, want := range []Line{{1, []byte("one"), 0}, {2, nil, 0}, {3, nil, 70 << 20}} {
		got, err := l.Next(t.Context())
		if err != nil || got.Number != want.Number || string(got.Data) != string(want.Data) || got.Oversized != want.Oversized {
			t.Errorf("line %d: %+v, %v", i, got, err)
		}
	}
	if _, err := l.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestLinesAreAcknowledgedTakenAndAnswered(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	l.Ack(2)
	if got := (<-other.requests).GetAck(); !slices.Equal(got.GetLines(), []uint64{2}) {
		t.Errorf("ack %v", got)
	}
	l.Take(3)
	if got := (<-other.requests).GetAck(); !slices.Equal(got.GetTaken(), []uint64{3}) {
		t.Errorf("ack %v", got)
	}
	if err := l.Answer(t.Context(), 3, []byte("a")); err != nil {
		t.Fatal(err)
	}
	if got := (<-other.requests).GetWrite(); got.GetAnswers() != 3 || string(got.GetData()) != "a" {
		t.Errorf("write %v", got)
	}
	if !l.Answering(3) {
		t.Error("stdout has not taken the answer yet")
	}
	other.events <- written(1)
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Answering(3) {
		t.Error("stdout has taken the answer")
	}
}

func TestALineWhoseAnswerWasLeftUnwrittenDoesNotComeAgain(t *testing.T) {
	h, conn := connect(t)
	var other *held
	var opening sync.WaitGroup
	opening.Go(func() {
		other = <-h.leases
		other.events <- &event{Event: &stdiov1.LeaseResponse_Opened_{Opened: &stdiov1.LeaseResponse_Opened{Written: 3, Due: []uint64{5, 6}}}}
		other.events <- line(5, "answered")
		other.events <- line(6, "not answered")
	})
	l, err := Open(t.Context(), conn, []Frame{{Number: 4, Data: []byte("a"), Answers: 5}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	opening.Wait()
	if got, err := l.Next(t.Context()); err != nil || got.Number != 6 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := (<-other.requests).GetWrite(); got.GetNumber() != 4 || got.GetAnswers() != 5 {
		t.Errorf("write %v", got)
	}
	if !l.Due(6) || l.Due(4) {
		t.Error("6 is due, and 4 is not")
	}
}

func TestWritesAreNumberedOnFromWhatWasWritten(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 7)
	if err := l.Write(t.Context(), []byte("a"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	if got := []string{other.write(t), other.write(t)}; !slices.Equal(got, []string{"8 a", "9 b"}) {
		t.Errorf("got %q", got)
	}
}

func TestWriteWaitsForAFullStdout(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	if err := l.Write(t.Context(), make([]byte, maxUnwrittenBytes)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.Write(short, []byte("given up"), []byte("too")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a write that had to wait: %v", err)
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := l.Write(t.Context(), []byte("next")); err != nil {
			t.Error(err)
		}
	})
	<-other.requests
	other.events <- written(1)
	writing.Wait()
	if got := other.write(t); got != "2 next" { // nothing of what was given up
		t.Errorf("got %q", got)
	}
}

func TestLiftedLeaseTakesTheWritesThatWait(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	if err := l.Write(t.Context(), make([]byte, maxUnwrittenBytes)); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for range 3 {
		writing.Go(func() {
			if err := l.Write(t.Context(), []byte("last words")); err != nil {
				t.Error(err)
			}
		})
	}
	l.Lift()
	writing.Wait()
	go func() {
		for range other.requests { // until the lessee gives up
		}
		other.end <- nil
	}()
	if left := l.Release(); len(left) != 4 || string(left[3].Data) != "last words" {
		t.Errorf("%d frames are left", len(left))
	}
}

func TestLinesComeWhileStdoutIsFull(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	if err := l.Write(t.Context(), make([]byte, maxUnwrittenBytes)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { _ = l.Write(ctx, []byte("waits")) })
	other.events <- line(1, "still")
	if got, err := l.Next(t.Context()); err != nil || string(got.Data) != "still" {
		t.Errorf("got %+v, %v", got, err)
	}
	cancel()
	writing.Wait()
}

func TestManyWritersKeepTheirOwnOrder(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	const writers, each = 8, 200
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				if err := l.Write(t.Context(), fmt.Appendf(nil, "%d %d", w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, writers)
	for n := uint64(1); n <= writers*each; n++ {
		write := (<-other.requests).GetWrite()
		var w, i int
		if _, err := fmt.Sscanf(string(write.GetData()), "%d %d", &w, &i); err != nil {
			t.Fatal(err)
		}
		if write.GetNumber() != n || i != next[w] {
			t.Fatalf("write %d has number %d and is %d of writer %d", n, write.GetNumber(), i, w)
		}
		next[w]++
		other.events <- written(n)
	}
	writing.Wait()
}

func TestFlushWaitsUntilStdoutHasTakenAll(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	if err := l.Flush(t.Context()); err != nil {
		t.Errorf("nothing to flush: %v", err)
	}
	if err := l.Write(t.Context(), []byte("a"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	<-other.requests
	<-other.requests
	other.events <- written(1)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("half is taken: %v", err)
	}
	other.events <- written(2)
	if err := l.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDoneComesAfterTheWrites(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	if err := l.Write(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	l.Done()
	if got := other.write(t); got != "1 a" {
		t.Errorf("got %q", got)
	}
	if (<-other.requests).GetDone() == nil {
		t.Error("no done")
	}
}

func TestReleasedLeaseLeavesItsUnwrittenFramesToTheNext(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	if err := l.Write(t.Context(), []byte("a"), []byte("b"), []byte("c")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-other.requests
	}
	other.events <- written(1)
	l.Ack(4)
	if got := (<-other.requests).GetAck(); !slices.Equal(got.GetLines(), []uint64{4}) {
		t.Errorf("ack %v", got)
	}
	var ending sync.WaitGroup
	ending.Go(func() {
		if _, more := <-other.requests; more {
			t.Error("a request after the release")
		}
		other.end <- nil
	})
	left := l.Release()
	ending.Wait()
	if len(left) != 2 || left[0].Number != 2 || string(left[1].Data) != "c" {
		t.Fatalf("left %v", left)
	}
	if err := l.Write(t.Context(), []byte("d")); !errors.Is(err, ErrReleased) {
		t.Errorf("write after the release: %v", err)
	}
	if _, err := l.Next(t.Context()); !errors.Is(err, ErrReleased) {
		t.Errorf("next after the release: %v", err)
	}
	next, other := open(t, h, conn, 2, left...) // the host had written b after all
	if err := next.Write(t.Context(), []byte("d")); err != nil {
		t.Fatal(err)
	}
	if got := []string{other.write(t), other.write(t)}; !slices.Equal(got, []string{"3 c", "4 d"}) {
		t.Errorf("got %q", got)
	}
}

func TestReleaseDoesNotWaitForAHostThatHangs(t *testing.T) {
	h, conn := connect(t)
	l, _ := open(t, h, conn, 0)
	start := time.Now()
	l.Release()
	if took := time.Since(start); took > 2*releaseLimit {
		t.Errorf("released after %s", took)
	}
}

func TestEndOfTheStreamEndsEverything(t *testing.T) {
	h, conn := connect(t)
	l, other := open(t, h, conn, 0)
	if err := l.Write(t.Context(), make([]byte, maxUnwrittenBytes)); err != nil {
		t.Fatal(err)
	}
	results := make(chan error)
	go func() { _, err := l.Next(t.Context()); results <- err }()
	go func() { results <- l.Write(t.Context(), []byte("x")) }()
	go func() { results <- l.Flush(t.Context()) }()
	<-other.requests
	other.end <- errors.New("stdout is broken")
	for range 3 {
		if err := <-results; err == nil || !strings.Contains(err.Error(), "stdout is broken") {
			t.Errorf("got %v", err)
		}
	}
}

func TestOpenGivesUpWithItsContext(t *testing.T) {
	_, conn := connect(t) // another has the lease
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, conn, nil); err == nil || !strings.HasPrefix(err.Error(), "lease stdin and stdout: ") {
		t.Errorf("got %v", err)
	}
}
