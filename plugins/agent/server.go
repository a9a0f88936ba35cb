package agent

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
)

// server takes the calls of the seam.
type server struct {
	agentsv1.UnimplementedAgentsServer
	agent *agent
}

func (v *server) Create(ctx context.Context, req *agentsv1.CreateRequest) (*agentsv1.CreateResponse, error) {
	if err := checkCwd(req.GetCwd()); err != nil {
		return nil, err
	}
	a, id := v.agent, newID()
	a.mu.Lock()
	if a.replaced.Load() {
		a.mu.Unlock()
		return a.active().Create(ctx, req)
	}
	at := a.reserve(id)
	a.mu.Unlock()
	a.fill(ctx, at, id, func() (*session, error) { return a.create(id, req.GetCwd()) })
	if at.err != nil {
		return nil, at.err
	}
	return &agentsv1.CreateResponse{SessionId: id}, nil
}

func (v *server) Load(ctx context.Context, req *agentsv1.LoadRequest) (*agentsv1.LoadResponse, error) {
	a, id := v.agent, req.GetSessionId()
	a.mu.Lock()
	if a.replaced.Load() {
		a.mu.Unlock()
		return a.active().Load(ctx, req)
	}
	if _, inherited := a.inherited[id]; inherited || a.sessions[id] != nil {
		a.mu.Unlock()
		return nil, status.Errorf(codes.AlreadyExists, "session %s is already loaded", id)
	}
	at := a.reserve(id)
	a.mu.Unlock()
	a.fill(ctx, at, id, func() (*session, error) { return a.load(id) })
	if errors.Is(at.err, errLocked) {
		return nil, status.Errorf(codes.AlreadyExists, "session %s is already loaded by another process", id)
	}
	if at.err != nil {
		return nil, at.err
	}
	s := at.session
	s.mu.Lock()
	defer s.mu.Unlock()
	return &agentsv1.LoadResponse{Cwd: s.conv.created.Cwd, LastSeq: s.log.seq}, nil
}

func (v *server) List(_ context.Context, req *agentsv1.ListRequest) (*agentsv1.ListResponse, error) {
	if cwd := req.GetCwd(); cwd != "" && !filepath.IsAbs(cwd) {
		return nil, status.Errorf(codes.InvalidArgument, "cwd must be an absolute path: %s", cwd)
	}
	page, next, err := v.agent.store.list(req.GetCwd(), req.GetPageToken(), int(req.GetPageSize()))
	if errors.Is(err, errToken) {
		return nil, status.Errorf(codes.InvalidArgument, "list sessions: %v", err)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "list sessions: %v", err)
	}
	answer := &agentsv1.ListResponse{NextPageToken: next}
	for _, l := range page {
		answer.Sessions = append(answer.Sessions, &agentsv1.SessionInfo{
			SessionId: l.id, Cwd: l.Cwd, Title: l.Title, Updated: timestamppb.New(l.Updated),
		})
	}
	return answer, nil
}

func (v *server) Close(ctx context.Context, req *agentsv1.CloseRequest) (*agentsv1.CloseResponse, error) {
	a, id := v.agent, req.GetSessionId()
	err := a.with(ctx, id,
		func(s *session) error { return s.close(ctx) },
		func(ctx context.Context, c agentsv1.AgentsClient) error {
			_, err := c.Close(ctx, req)
			if err == nil {
				a.disown(id)
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	a.checkpoint(ctx)
	return &agentsv1.CloseResponse{}, nil
}

func (v *server) Delete(ctx context.Context, req *agentsv1.DeleteRequest) (*agentsv1.DeleteResponse, error) {
	a, id := v.agent, req.GetSessionId()
	for {
		_, err := v.Close(ctx, &agentsv1.CloseRequest{SessionId: id})
		if code := status.Code(err); code != codes.OK && code != codes.NotFound && code != codes.FailedPrecondition {
			return nil, err
		}
		a.mu.Lock()
		if a.replaced.Load() {
			a.mu.Unlock()
			return a.active().Delete(ctx, req)
		}
		if a.sessions[id] != nil { // loaded again meanwhile
			a.mu.Unlock()
			continue
		}
		at := a.reserve(id) // so that nobody loads it now
		a.mu.Unlock()
		a.fill(ctx, at, id, func() (*session, error) {
			if err := a.delete(id); err != nil {
				return nil, err
			}
			return nil, unknownSession(id)
		})
		if status.Code(at.err) == codes.NotFound {
			return &agentsv1.DeleteResponse{}, nil
		}
		return nil, at.err
	}
}

func (v *server) Prompt(req *agentsv1.PromptRequest, stream grpc.ServerStreamingServer[agentsv1.PromptResponse]) error {
	ctx := stream.Context()
	content, err := promptContent(req)
	if err != nil {
		return err
	}
	p := &prompt{id: req.GetPromptId(), content: content, cancelled: req.GetCancelled(), canAsk: req.GetCanAsk()}
	var s *session
	err = v.agent.with(ctx, req.GetSessionId(), func(live *session) (err error) {
		s = live
		return s.open(func(f *follower) error {
			p.follower = f
			return s.enqueue(p)
		})
	}, func(ctx context.Context, c agentsv1.AgentsClient) error {
		s = nil
		from, err := c.Prompt(ctx, req)
		return pump(from, err, stream)
	})
	if err != nil || s == nil {
		return err
	}
	defer s.closeFollower(p.follower)
	if err := stream.Send(&agentsv1.PromptResponse{Response: &agentsv1.PromptResponse_Accepted_{Accepted: &agentsv1.PromptResponse_Accepted{}}}); err != nil {
		return err
	}
	return s.send(ctx, p.follower, func(events []*agentsv1.Event) error {
		return stream.Send(&agentsv1.PromptResponse{Response: &agentsv1.PromptResponse_Events_{Events: &agentsv1.PromptResponse_Events{Events: events}}})
	})
}

// promptContent is the message of a request, checked.
func promptContent(req *agentsv1.PromptRequest) ([]agents.ContentBlock, error) {
	if req.GetPromptId() == "" {
		return nil, status.Error(codes.InvalidArgument, "prompt_id is empty")
	}
	var content []agents.ContentBlock
	empty := true
	for i, block := range req.GetContent() {
		b, ok := agents.BlockOf(block)
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "content block %d has no content", i+1)
		}
		content = append(content, b)
		empty = empty && b.Type == agents.BlockText && strings.TrimSpace(b.Text) == ""
	}
	if empty {
		return nil, status.Error(codes.InvalidArgument, "empty prompt")
	}
	return content, nil
}

func (v *server) Cancel(ctx context.Context, req *agentsv1.CancelRequest) (*agentsv1.CancelResponse, error) {
	err := v.agent.with(ctx, req.GetSessionId(),
		func(s *session) error { return s.cancel(req.GetPromptId()) },
		func(ctx context.Context, c agentsv1.AgentsClient) error {
			_, err := c.Cancel(ctx, req)
			return err
		})
	if err != nil {
		return nil, err
	}
	return &agentsv1.CancelResponse{}, nil
}

func (v *server) Answer(ctx context.Context, req *agentsv1.AnswerRequest) (*agentsv1.AnswerResponse, error) {
	err := v.agent.with(ctx, req.GetSessionId(),
		func(s *session) error { return s.answer(req.GetCallId(), agents.OutcomeOf(req.GetOutcome())) },
		func(ctx context.Context, c agentsv1.AgentsClient) error {
			_, err := c.Answer(ctx, req)
			return err
		})
	if err != nil {
		return nil, err
	}
	return &agentsv1.AnswerResponse{}, nil
}

func (v *server) Options(ctx context.Context, req *agentsv1.OptionsRequest) (*agentsv1.OptionsResponse, error) {
	answer := &agentsv1.OptionsResponse{}
	err := v.agent.with(ctx, req.GetSessionId(),
		func(s *session) (err error) {
			answer.Options, err = s.options(ctx)
			return err
		},
		func(ctx context.Context, c agentsv1.AgentsClient) (err error) {
			answer, err = c.Options(ctx, req)
			return err
		})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (v *server) SetOption(ctx context.Context, req *agentsv1.SetOptionRequest) (*agentsv1.SetOptionResponse, error) {
	err := v.agent.with(ctx, req.GetSessionId(),
		func(s *session) error { return s.setOption(ctx, req.GetOption(), req.GetValue()) },
		func(ctx context.Context, c agentsv1.AgentsClient) error {
			_, err := c.SetOption(ctx, req)
			return err
		})
	if err != nil {
		return nil, err
	}
	return &agentsv1.SetOptionResponse{}, nil
}

func (v *server) Inject(ctx context.Context, req *agentsv1.InjectRequest) (*agentsv1.InjectResponse, error) {
	d := &agents.ContextInjected{
		Text: req.GetText(), Key: req.GetKey(),
		Source: agents.Source{Kind: req.GetSource().GetKind(), Plugin: req.GetSource().GetPlugin()},
	}
	err := v.agent.with(ctx, req.GetSessionId(),
		func(s *session) error { return s.inject(d) },
		func(ctx context.Context, c agentsv1.AgentsClient) error {
			_, err := c.Inject(ctx, req)
			return err
		})
	if err != nil {
		return nil, err
	}
	return &agentsv1.InjectResponse{}, nil
}

func (v *server) Subscribe(req *agentsv1.SubscribeRequest, stream grpc.ServerStreamingServer[agentsv1.SubscribeResponse]) error {
	var s *session
	var f *follower
	err := v.agent.with(stream.Context(), req.GetSessionId(), func(live *session) error {
		s = live
		return s.open(func(opened *follower) error {
			f = opened
			return s.subscribe(f, req.GetAfterSeq(), req.GetFollow())
		})
	}, func(ctx context.Context, c agentsv1.AgentsClient) error {
		s = nil
		from, err := c.Subscribe(ctx, req)
		return pump(from, err, stream)
	})
	send := func(events []*agentsv1.Event) error { return stream.Send(&agentsv1.SubscribeResponse{Events: events}) }
	if status.Code(err) == codes.NotFound && !req.GetFollow() { // it is not live
		return v.agent.show(req.GetSessionId(), req.GetAfterSeq(), send)
	}
	if err != nil || s == nil {
		return err
	}
	defer s.closeFollower(f)
	return s.send(stream.Context(), f, send)
}
