package bash_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type stream = grpc.BidiStreamingServer[bashv1.RunRequest, bashv1.RunResponse]

// fake is an executor whose Run is what a test says.
type fake struct {
	bashv1.UnimplementedBashServer
	run   func(stream) error
	claim []string
}

func (f *fake) Run(s stream) error { return f.run(s) }

func (f *fake) Read(ctx context.Context, req *bashv1.ReadRequest) (*bashv1.ReadResponse, error) {
	f.claim = metadata.ValueFromIncomingContext(ctx, "dsh-claim")
	return &bashv1.ReadResponse{Stdout: []byte(req.GetTaskId() + " " + req.GetSessionId())}, nil
}

func (f *fake) Kill(ctx context.Context, _ *bashv1.KillRequest) (*bashv1.KillResponse, error) {
	f.claim = metadata.ValueFromIncomingContext(ctx, "dsh-claim")
	return &bashv1.KillResponse{AlreadyFinished: true}, nil
}

// client returns a client of the fake, and what ends both.
func client(t *testing.T, f *fake) (*bash.Client, func()) {
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	bashv1.RegisterBashServer(server, f)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return bash.NewClient(conn), func() {
		conn.Close()
		server.Stop()
		<-serving
	}
}

func output(text string) *bashv1.RunResponse {
	return &bashv1.RunResponse{Event: &bashv1.RunResponse_Output_{Output: &bashv1.RunResponse_Output{Data: []byte(text)}}}
}

func result(r *bashv1.Result) *bashv1.RunResponse {
	return &bashv1.RunResponse{Event: &bashv1.RunResponse_Result{Result: r}}
}

func TestRunDeliversOutputThenReturnsTheResult(t *testing.T) {
	c, stop := client(t, &fake{run: func(s stream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		return errors.Join(s.Send(output("a")), s.Send(output("b")), s.Send(result(&bashv1.Result{TimeoutMs: first.GetRun().GetTimeoutMs()})))
	}})
	defer stop()
	got := ""
	r, err := c.Run(t.Context(), &bashv1.RunRequest_Run{TimeoutMs: 7}, func(data []byte) { got += string(data) })
	if err != nil || got != "ab" || r.GetTimeoutMs() != 7 {
		t.Errorf("got %q, %v, %v", got, r, err)
	}
}

func TestCancelIsSentAndTheResultAwaited(t *testing.T) {
	c, stop := client(t, &fake{run: func(s stream) error {
		if err := s.Send(output("begun")); err != nil {
			return err
		}
		for {
			request, err := s.Recv()
			if err != nil {
				return err
			}
			if request.GetCancel() != nil {
				return s.Send(result(&bashv1.Result{Aborted: true}))
			}
		}
	}})
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := c.Run(ctx, &bashv1.RunRequest_Run{}, func([]byte) { cancel() })
	if err != nil || !r.GetAborted() {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestCancelledBeforeItBegan(t *testing.T) {
	called := false
	c, stop := client(t, &fake{run: func(stream) error { called = true; return nil }})
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(ctx, &bashv1.RunRequest_Run{}, nil); status.Code(err) != codes.Canceled || called {
		t.Errorf("got %v, called: %v", err, called)
	}
}

func TestCancelThatIsNotHeardBreaksTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := client(t, &fake{run: func(s stream) error {
			if err := s.Send(output("begun")); err != nil {
				return err
			}
			<-s.Context().Done()
			return s.Context().Err()
		}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var cancelled time.Time
		_, err := c.Run(ctx, &bashv1.RunRequest_Run{}, func([]byte) { cancelled = time.Now(); cancel() })
		if took := time.Since(cancelled); status.Code(err) != codes.Canceled || took != bash.CancelLimit {
			t.Errorf("got %v after %v", err, took)
		}
		stop()
	})
}

func TestErrorsOfRun(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(stream) error
		want codes.Code
	}{
		"the executor's own":  {func(stream) error { return status.Error(codes.FailedPrecondition, "no shell") }, codes.FailedPrecondition},
		"an end without any":  {func(stream) error { return nil }, codes.Internal},
		"after the requests'": {func(s stream) error { _, _ = s.Recv(); return status.Error(codes.Unavailable, "gone") }, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c, stop := client(t, &fake{run: test.run})
			defer stop()
			if r, err := c.Run(t.Context(), &bashv1.RunRequest_Run{}, nil); status.Code(err) != test.want || r != nil || errors.Is(err, io.EOF) {
				t.Errorf("got %v, %v", r, err)
			}
		})
	}
}

func TestReadAndKillCarryTheClaim(t *testing.T) {
	f := &fake{}
	c, stop := client(t, f)
	defer stop()
	r, err := c.Read(t.Context(), "bash-3", "s-1")
	if err != nil || string(r.GetStdout()) != "bash-3 s-1" || len(f.claim) != 1 || f.claim[0] != "bash-3" {
		t.Errorf("read: %v, %v, claim %v", r, err, f.claim)
	}
	f.claim = nil
	finished, err := c.Kill(t.Context(), "bash-4", "s-1")
	if err != nil || !finished || len(f.claim) != 1 || f.claim[0] != "bash-4" {
		t.Errorf("kill: %v, %v, claim %v", finished, err, f.claim)
	}
}

func TestFinishedKey(t *testing.T) {
	if key := bash.FinishedKey("bash-5"); key != "bash-5:finished" || bash.TopicTaskFinished != "bash.task.finished" || bash.Seam.Service != "dsh.bash.v1.Bash" {
		t.Errorf("got %s, %s, %v", key, bash.TopicTaskFinished, bash.Seam)
	}
}
