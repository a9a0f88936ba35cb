package executor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// server answers the calls of the bash seam.
type server struct {
	bashv1.UnimplementedBashServer
	*engine
}

func (s *server) Defaults(context.Context, *bashv1.DefaultsRequest) (*bashv1.DefaultsResponse, error) {
	return &bashv1.DefaultsResponse{
		TimeoutMs: s.options.Timeout.Milliseconds(), MaxTimeoutMs: s.options.MaxTimeout.Milliseconds(), Cwd: s.options.Cwd,
	}, nil
}

// Run is the command's sender: it passes on what is printed and at the end the result.
func (s *server) Run(stream grpc.BidiStreamingServer[bashv1.RunRequest, bashv1.RunResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	run := first.GetRun()
	if run == nil {
		return status.Error(codes.InvalidArgument, "the first request of a call must be the command")
	}
	limit, err := s.timeLimit(run.GetTimeoutMs())
	if err != nil {
		return err
	}
	c, err := s.start(run.GetCommand(), limit)
	if err != nil {
		return err
	}
	defer context.AfterFunc(stream.Context(), c.requestKill)()
	s.work.Go(func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				return // the end of the requests, or of the call: that is for the context to tell
			}
			if request.GetCancel() != nil {
				c.requestKill()
			}
		}
	})
	err = c.send(stream)
	<-c.done
	if err = cmp.Or(err, c.failure); err != nil {
		return err
	}
	return stream.Send(&bashv1.RunResponse{Event: &bashv1.RunResponse_Result{Result: c.result(limit)}})
}

// start starts a foreground command.
func (s *server) start(command *bashv1.Command, limit time.Duration) (*command, error) {
	if err := check(command); err != nil {
		return nil, err
	}
	s.launching.RLock()
	defer s.launching.RUnlock()
	if s.closed {
		return nil, s.stopping()
	}
	p, err := s.prepare(command)
	if err != nil {
		return nil, err
	}
	return s.launch(p, limit, newLive())
}

func (e *engine) stopping() error {
	return status.Errorf(codes.Unavailable, "executor %q is being stopped", e.Row())
}

// timeLimit is the limit in force for one that was asked for.
func (e *engine) timeLimit(ms int64) (time.Duration, error) {
	switch {
	case ms < 0:
		return 0, status.Errorf(codes.InvalidArgument, "the time limit must not be negative: %d ms", ms)
	case ms == 0:
		return e.options.Timeout, nil
	case ms > e.options.MaxTimeout.Milliseconds():
		return e.options.MaxTimeout, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// send sends what the command prints until it is done and nothing is left, a message at most every liveInterval.
func (c *command) send(stream grpc.BidiStreamingServer[bashv1.RunRequest, bashv1.RunResponse]) error {
	for done := false; !done; {
		select {
		case <-c.done:
			done = true
		case <-c.live.wake:
			gather := time.NewTimer(liveInterval)
			select {
			case <-c.done:
				done = true
			case <-gather.C:
			}
			gather.Stop()
		}
		for data := c.live.next(); len(data) > 0; data = c.live.next() {
			output := &bashv1.RunResponse_Output{Data: data}
			if err := stream.Send(&bashv1.RunResponse{Event: &bashv1.RunResponse_Output_{Output: output}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *command) result(limit time.Duration) *bashv1.Result {
	return &bashv1.Result{
		Stdout: c.stdout.result(), Stderr: c.stderr.result(), Exit: c.exit,
		TimedOut: c.timedOut, TimeoutMs: limit.Milliseconds(), Aborted: c.aborted,
		DurationUs: c.ended.Sub(c.started).Microseconds(), Notes: c.notes,
	}
}

func (s *server) Start(ctx context.Context, req *bashv1.StartRequest) (*bashv1.StartResponse, error) {
	id, err := s.startTask(ctx, req.GetCommand())
	if err != nil {
		return nil, err
	}
	return &bashv1.StartResponse{TaskId: id}, nil
}

func (s *server) Read(ctx context.Context, req *bashv1.ReadRequest) (*bashv1.ReadResponse, error) {
	t, err := s.find(ctx, req.GetTaskId(), req.GetSessionId())
	if err != nil {
		return nil, err
	}
	answer, here := t.read()
	if !here {
		return s.bash().Read(sdk.WithClaim(ctx, req.GetTaskId()), req)
	}
	if t.isRead() {
		s.checkpoint.drop(t.id)
	}
	return answer, nil
}

func (s *server) Kill(ctx context.Context, req *bashv1.KillRequest) (*bashv1.KillResponse, error) {
	t, err := s.find(ctx, req.GetTaskId(), req.GetSessionId())
	if err != nil {
		return nil, err
	}
	return &bashv1.KillResponse{AlreadyFinished: !t.kill()}, nil
}

func (s *server) List(context.Context, *bashv1.ListRequest) (*bashv1.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &bashv1.ListResponse{}
	for _, t := range s.order {
		if t.lost != "" {
			continue
		}
		answer.Tasks = append(answer.Tasks, t.describe())
	}
	for _, t := range s.elsewhere {
		answer.Tasks = append(answer.Tasks, t.describe())
	}
	slices.SortStableFunc(answer.Tasks, func(a, b *bashv1.Task) int { return a.GetStarted().AsTime().Compare(b.GetStarted().AsTime()) })
	return answer, nil
}
