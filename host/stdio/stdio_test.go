package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/stdiov1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinesOfAnyLengthAreReadAndThoseOverTheLimitSkipped(t *testing.T) {
	for _, test := range []struct{ name, input, want string }{
		{"lines", "a\nbc\n\n", "a|bc||EOF"},
		{"no newline at the end", "a\nb", "a|b EOF"},
		{"nothing", "", " EOF"},
		{"exactly the limit", strings.Repeat("x", 100) + "\nb\n", strings.Repeat("x", 100) + "|b| EOF"},
		{"over the limit", strings.Repeat("x", 101) + "\nb\n", "(101)|b| EOF"},
		{"far over the limit", strings.Repeat("x", 200_000) + "\nb\n", "(200000)|b| EOF"},
		{"over the limit without a newline", strings.Repeat("x", 101), "(101) EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newLineReader(strings.NewReader(test.input), 100)
			var got strings.Builder
			for {
				line, oversized, err := r.next()
				got.Write(line)
				if oversized > 0 {
					fmt.Fprintf(&got, "(%d)", oversized)
				}
				if err != nil {
					got.WriteString(" EOF")
					break
				}
				got.WriteString("|")
			}
			if want := strings.ReplaceAll(test.want, "|EOF", "| EOF"); got.String() != want {
				t.Errorf("got %q, want %q", got.String(), want)
			}
		})
	}
}

// serveTest serves the seam on a socket.
func serveTest(t *testing.T, s *Server) stdiov1.StdioClient {
	t.Helper()
	path := t.TempDir() + "/s"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(api.ServerOptions(), grpc.WaitForHandlers(true))...)
	stdiov1.RegisterStdioServer(server, s)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	conn, err := api.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		served.Wait()
	})
	return stdiov1.NewStdioClient(conn)
}

func lease(t *testing.T, ctx context.Context, client stdiov1.StdioClient) stdiov1.Stdio_LeaseClient {
	t.Helper()
	stream, err := client.Lease(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// next describes the next event of a lease.
func next(t *testing.T, stream stdiov1.Stdio_LeaseClient) string {
	t.Helper()
	event, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	switch e := event.GetEvent().(type) {
	case *stdiov1.LeaseResponse_Opened_:
		if due := e.Opened.GetDue(); len(due) > 0 {
			return fmt.Sprintf("opened %d, due %d", e.Opened.GetWritten(), due)
		}
		return fmt.Sprintf("opened %d", e.Opened.GetWritten())
	case *stdiov1.LeaseResponse_Line_:
		return fmt.Sprintf("line %d %s", e.Line.GetNumber(), e.Line.GetData())
	case *stdiov1.LeaseResponse_Written:
		return fmt.Sprintf("written %d", e.Written)
	default:
		return "end"
	}
}

func expect(t *testing.T, stream stdiov1.Stdio_LeaseClient, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(t, stream); got != w {
			t.Fatalf("got %q, want %q", got, w)
		}
	}
}

func send(t *testing.T, stream stdiov1.Stdio_LeaseClient, r *stdiov1.LeaseRequest) {
	t.Helper()
	if err := stream.Send(r); err != nil {
		t.Fatal(err)
	}
}

func write(number uint64, data string) *stdiov1.LeaseRequest {
	return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Write_{Write: &stdiov1.LeaseRequest_Write{Number: number, Data: []byte(data)}}}
}

func answer(number, line uint64, data string) *stdiov1.LeaseRequest {
	r := write(number, data)
	r.GetWrite().Answers = line
	return r
}

func ack(lines ...uint64) *stdiov1.LeaseRequest {
	return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Ack_{Ack: &stdiov1.LeaseRequest_Ack{Lines: lines}}}
}

func take(lines ...uint64) *stdiov1.LeaseRequest {
	return &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Ack_{Ack: &stdiov1.LeaseRequest_Ack{Taken: lines}}}
}

func TestTheNextLeaseGetsWhatTheLastOneHasNotDealtWith(t *testing.T) {
	var stdout bytes.Buffer
	s := New(&stdout)
	s.Run(t.Context(), strings.NewReader("one\ntwo\nthree\nfour\nfive\n"))
	client := serveTest(t, s)

	first := lease(t, t.Context(), client)
	expect(t, first, "opened 0, due [1 2 3 4 5]", "line 1 one", "line 2 two", "line 3 three", "line 4 four", "line 5 five", "end")
	send(t, first, take(2, 3))
	send(t, first, ack(4))
	send(t, first, answer(1, 2, "hello\n"))
	send(t, first, take(2)) // late: it has its answer
	send(t, first, write(2, "more\n"))
	expect(t, first, "written 1", "written 2")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	second := lease(t, ctx, client) // waits
	if err := first.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("the first lease ends with %v", err)
	}
	expect(t, second, "opened 2, due [1 3 5]", "line 1 one", "line 5 five", "end")
	send(t, second, write(2, "again\n")) // repeated by a successor that did not know: dropped
	send(t, second, answer(3, 3, "bye\n"))
	send(t, second, answer(4, 5, "five\n"))
	expect(t, second, "written 2", "written 3", "written 4")
	cancel()
	expect(t, lease(t, t.Context(), client), "opened 4, due [1]", "line 1 one", "end")
	if got, want := stdout.String(), "hello\nmore\nbye\nfive\n"; got != want {
		t.Errorf("stdout has %q, want %q", got, want)
	}
}

// However a lessee dies: no line is lost, none has two answers, and the next lessee is told of exactly those that have none.
func TestEveryLineIsAnsweredOnceWhateverDies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stdout bytes.Buffer
		s := New(&stdout)
		count := rapid.Uint64Range(1, 20).Draw(t, "lines")
		s.Run(context.Background(), strings.NewReader(strings.Repeat("x\n", int(count))))
		written, taken := uint64(0), map[uint64]bool{}
		due := map[uint64]bool{}
		for n := range count {
			due[n+1] = true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			line := rapid.Uint64Range(1, count).Draw(t, "line")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				s.ack(&stdiov1.LeaseRequest_Ack{Taken: []uint64{line}})
				taken[line] = taken[line] || due[line]
			case 1:
				s.ack(&stdiov1.LeaseRequest_Ack{Lines: []uint64{line}})
				delete(due, line)
			case 2:
				written++
				if err := s.write(&stdiov1.LeaseRequest_Write{Number: written, Answers: line}); err != nil {
					t.Fatal(err)
				}
				delete(due, line)
			case 3: // the next lease
				if got, want := s.opened().GetDue(), slices.Sorted(maps.Keys(due)); !slices.Equal(got, want) {
					t.Fatalf("due are %d, want %d", got, want)
				}
				for n := uint64(1); n <= count; n++ {
					_, pending := s.find(n)
					if want := due[n] && !taken[n]; pending != want {
						t.Fatalf("line %d comes again: %t, want %t", n, pending, want)
					}
				}
			}
		}
	})
}

func TestDoneSettlesTheHost(t *testing.T) {
	s := New(io.Discard)
	s.Run(t.Context(), strings.NewReader(""))
	<-s.Ended()
	stream := lease(t, t.Context(), serveTest(t, s))
	expect(t, stream, "opened 0", "end")
	select {
	case <-s.Settled():
		t.Fatal("settled before the lessee is done")
	default:
	}
	send(t, stream, &stdiov1.LeaseRequest{Request: &stdiov1.LeaseRequest_Done_{Done: &stdiov1.LeaseRequest_Done{}}})
	<-s.Settled()
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestABrokenStdoutSettlesTheHost(t *testing.T) {
	s := New(brokenPipe{})
	stream := lease(t, t.Context(), serveTest(t, s))
	expect(t, stream, "opened 0")
	send(t, stream, write(1, "x\n"))
	<-s.Settled()
	if _, err := stream.Recv(); err == nil || !strings.Contains(err.Error(), "write stdout: broken pipe; is the client gone?") {
		t.Errorf("got %v", err)
	}
}

func TestStdinWaitsWhileTooManyLinesAreNotAcknowledged(t *testing.T) {
	s := New(io.Discard)
	reader, writer := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() { s.Run(t.Context(), reader) })
	defer running.Wait()
	defer writer.Close()
	stream := lease(t, t.Context(), serveTest(t, s))
	expect(t, stream, "opened 0")
	running.Go(func() { fmt.Fprint(writer, strings.Repeat("x\n", 2*maxPending)) })
	for n := 1; n <= maxPending; n++ {
		expect(t, stream, fmt.Sprintf("line %d x", n))
	}
	s.mu.Lock()
	pending := len(s.pending)
	s.mu.Unlock()
	if pending > maxPending {
		t.Errorf("%d lines are held, want at most %d", pending, maxPending)
	}
	var lines []uint64
	for n := range uint64(maxPending) {
		lines = append(lines, n+1)
	}
	send(t, stream, ack(lines...))
	for n := maxPending + 1; n <= 2*maxPending; n++ {
		expect(t, stream, fmt.Sprintf("line %d x", n))
	}
	for i := range lines {
		lines[i] += maxPending
	}
	send(t, stream, ack(lines...))
}
