package acp_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
)

// fakeAgents stands in for the agent: sessions with logs, and turns that a test writes as functions.
type fakeAgents struct {
	agentsv1.UnimplementedAgentsServer
	// turn is what a turn does after turn/start and user/message and before turn/end. It returns how the turn ends.
	turn func(t *fakeTurn) agents.TurnEnd
	// accept, when set, is called before a prompt is accepted.
	accept func(*agentsv1.PromptRequest)
	// load, when set, is called by each Load.
	load func()

	mu       sync.Mutex
	changed  chan struct{}
	sessions map[string]*fakeSession
	created  int
	calls    []string // e.g. "Cancel s1"
	turns    sync.WaitGroup
	broken   bool // streams of events break off
	options  []agents.Option
}

type fakeSession struct {
	id      string
	cwd     string
	live    bool
	log     []agents.Event
	cancels map[string]chan struct{} // prompts under way
	asked   string                   // the call that waits for an answer
	answers chan agents.Outcome
}

// fakeTurn is a turn under way.
type fakeTurn struct {
	a         *fakeAgents
	s         *fakeSession
	text      string
	cancelled chan struct{}
}

func newFakeAgents(turn func(*fakeTurn) agents.TurnEnd) *fakeAgents {
	return &fakeAgents{turn: turn, changed: make(chan struct{}), sessions: map[string]*fakeSession{}}
}

func (a *fakeAgents) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// emit appends an event.
func (t *fakeTurn) emit(data agents.Data) {
	t.a.change(func() { t.s.append(data) })
}

// ask asks a person about a call.
func (t *fakeTurn) ask(ask agents.ToolAsk) agents.Outcome {
	answers := make(chan agents.Outcome, 1)
	t.a.change(func() {
		t.s.asked, t.s.answers = ask.CallID, answers
		t.s.append(&ask)
	})
	outcome := agents.OutcomeCancelled
	select {
	case outcome = <-answers:
	case <-t.cancelled:
	}
	t.a.change(func() {
		t.s.asked = ""
		t.s.append(&agents.ToolAnswer{CallID: ask.CallID, Outcome: outcome})
	})
	return outcome
}

func (a *fakeAgents) Answer(_ context.Context, r *agentsv1.AnswerRequest) (*agentsv1.AnswerResponse, error) {
	outcome := agents.OutcomeOf(r.GetOutcome())
	a.note("Answer %s %s %s", r.GetSessionId(), r.GetCallId(), outcome)
	a.change(func() {
		if s := a.sessions[r.GetSessionId()]; s != nil && s.asked != "" && s.asked == r.GetCallId() {
			s.asked = ""
			s.answers <- outcome
		}
	})
	return &agentsv1.AnswerResponse{}, nil
}

func (a *fakeAgents) Options(_ context.Context, r *agentsv1.OptionsRequest) (*agentsv1.OptionsResponse, error) {
	if _, err := a.live(r.GetSessionId()); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := &agentsv1.OptionsResponse{}
	for _, o := range a.options {
		option := &agentsv1.Option{Id: o.ID, Name: o.Name, Current: o.Current}
		for _, v := range o.Values {
			option.Values = append(option.Values, &agentsv1.Option_Value{Id: v.ID, Name: v.Name, Description: v.Description})
		}
		answer.Options = append(answer.Options, option)
	}
	return answer, nil
}

func (a *fakeAgents) SetOption(_ context.Context, r *agentsv1.SetOptionRequest) (*agentsv1.SetOptionResponse, error) {
	s, err := a.live(r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if !a.choose(s, r.GetOption(), r.GetValue()) {
		return nil, status.Errorf(codes.InvalidArgument, "session %s has no option %q", s.id, r.GetOption())
	}
	return &agentsv1.SetOptionResponse{}, nil
}

// choose sets an option of all sessions, and logs it in one.
func (a *fakeAgents) choose(s *fakeSession, id, value string) (known bool) {
	a.change(func() {
		for i := range a.options {
			if a.options[i].ID == id {
				a.options[i].Current = value
				s.append(&agents.SessionOption{Option: id, Value: value})
				known = true
			}
		}
	})
	return known
}

// callID is unique within the session.
func (t *fakeTurn) callID() string {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	return fmt.Sprintf("c%d", len(t.s.log))
}

func (s *fakeSession) append(data agents.Data) {
	s.log = append(s.log, agents.Event{Seq: uint64(len(s.log) + 1), Time: time.Unix(1700000000, 0), Data: data})
}

func (a *fakeAgents) note(format string, args ...any) {
	a.change(func() { a.calls = append(a.calls, fmt.Sprintf(format, args...)) })
}

func (a *fakeAgents) live(id string) (*fakeSession, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[id]
	if s == nil || !s.live {
		return nil, status.Errorf(codes.NotFound, "unknown session: %s", id)
	}
	return s, nil
}

func (a *fakeAgents) Create(_ context.Context, r *agentsv1.CreateRequest) (*agentsv1.CreateResponse, error) {
	var id string
	a.change(func() {
		a.created++
		id = fmt.Sprintf("s%d", a.created)
		s := &fakeSession{id: id, cwd: r.GetCwd(), live: true, cancels: map[string]chan struct{}{}}
		s.append(&agents.SessionCreated{Format: 1, SessionID: id, Cwd: r.GetCwd()})
		a.sessions[id] = s
	})
	return &agentsv1.CreateResponse{SessionId: id}, nil
}

func (a *fakeAgents) Load(_ context.Context, r *agentsv1.LoadRequest) (*agentsv1.LoadResponse, error) {
	a.note("Load %s", r.GetSessionId())
	if a.load != nil {
		a.load()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[r.GetSessionId()]
	switch {
	case s == nil:
		return nil, status.Errorf(codes.NotFound, "unknown session: %s", r.GetSessionId())
	case s.live:
		return nil, status.Errorf(codes.AlreadyExists, "session %s is already loaded", s.id)
	case s.cwd == "":
		return nil, status.Errorf(codes.FailedPrecondition, "session %s has no absolute cwd", s.id)
	}
	s.live = true
	return &agentsv1.LoadResponse{Cwd: s.cwd, LastSeq: uint64(len(s.log))}, nil
}

func (a *fakeAgents) List(_ context.Context, r *agentsv1.ListRequest) (*agentsv1.ListResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := &agentsv1.ListResponse{}
	for i := a.created; i > 0; i-- {
		s := a.sessions[fmt.Sprintf("s%d", i)]
		if s == nil || r.GetCwd() != "" && r.GetCwd() != s.cwd || r.GetPageToken() != "" && s.id >= r.GetPageToken() {
			continue
		}
		if len(answer.Sessions) == 2 {
			answer.NextPageToken = answer.Sessions[1].SessionId
			break
		}
		answer.Sessions = append(answer.Sessions, &agentsv1.SessionInfo{
			SessionId: s.id, Cwd: s.cwd, Title: "title of " + s.id, Updated: timestamppb.New(time.Unix(1700000000, 0)),
		})
	}
	return answer, nil
}

func (a *fakeAgents) Close(ctx context.Context, r *agentsv1.CloseRequest) (*agentsv1.CloseResponse, error) {
	a.note("Close %s", r.GetSessionId())
	s, err := a.live(r.GetSessionId())
	if err != nil {
		return nil, err
	}
	a.change(func() { s.live = false })
	return &agentsv1.CloseResponse{}, nil
}

func (a *fakeAgents) Delete(_ context.Context, r *agentsv1.DeleteRequest) (*agentsv1.DeleteResponse, error) {
	a.note("Delete %s", r.GetSessionId())
	a.change(func() { delete(a.sessions, r.GetSessionId()) })
	return &agentsv1.DeleteResponse{}, nil
}

func (a *fakeAgents) Cancel(_ context.Context, r *agentsv1.CancelRequest) (*agentsv1.CancelResponse, error) {
	a.note("Cancel %s", r.GetSessionId())
	a.change(func() {
		if s := a.sessions[r.GetSessionId()]; s != nil {
			if cancelled := s.cancels[r.GetPromptId()]; cancelled != nil {
				close(cancelled)
				delete(s.cancels, r.GetPromptId())
			}
		}
	})
	return &agentsv1.CancelResponse{}, nil
}

func (a *fakeAgents) Prompt(r *agentsv1.PromptRequest, stream grpc.ServerStreamingServer[agentsv1.PromptResponse]) error {
	if a.accept != nil {
		a.accept(r)
	}
	s, err := a.live(r.GetSessionId())
	if err != nil {
		return err
	}
	t := &fakeTurn{a: a, s: s, cancelled: make(chan struct{})}
	message := &agents.UserMessage{PromptID: r.GetPromptId()}
	for _, block := range r.GetContent() {
		t.text += block.GetText()
		message.Content = append(message.Content, contentBlock(block))
	}
	var from int
	a.change(func() {
		a.calls = append(a.calls, fmt.Sprintf("Prompt %s %s cancelled=%t", s.id, t.text, r.GetCancelled()))
		from = len(s.log)
		s.append(&agents.TurnStart{})
		s.append(message)
		if r.GetCancelled() {
			s.append(&agents.TurnEnd{Reason: agents.ReasonAborted})
			return
		}
		s.cancels[r.GetPromptId()] = t.cancelled
		a.turns.Go(func() {
			end := a.turn(t)
			a.change(func() {
				delete(s.cancels, r.GetPromptId())
				s.append(&end)
			})
		})
	})
	if err := stream.Send(&agentsv1.PromptResponse{Response: &agentsv1.PromptResponse_Accepted_{Accepted: &agentsv1.PromptResponse_Accepted{}}}); err != nil {
		return err
	}
	return a.stream(stream.Context(), s, from, true, func(e *agentsv1.Event) error {
		return stream.Send(&agentsv1.PromptResponse{Response: &agentsv1.PromptResponse_Events_{Events: &agentsv1.PromptResponse_Events{Events: []*agentsv1.Event{e}}}})
	})
}

func contentBlock(block *agentsv1.ContentBlock) agents.ContentBlock {
	switch b := block.GetBlock().(type) {
	case *agentsv1.ContentBlock_ResourceLink_:
		return agents.ContentBlock{Type: agents.BlockResourceLink, URI: b.ResourceLink.GetUri(), Name: b.ResourceLink.GetName()}
	case *agentsv1.ContentBlock_Resource_:
		return agents.ContentBlock{
			Type: agents.BlockResource, URI: b.Resource.GetUri(), MimeType: b.Resource.GetMimeType(), Text: b.Resource.GetText(),
		}
	}
	return agents.ContentBlock{Type: agents.BlockText, Text: block.GetText()}
}

func (a *fakeAgents) Subscribe(r *agentsv1.SubscribeRequest, stream grpc.ServerStreamingServer[agentsv1.SubscribeResponse]) error {
	a.note("Subscribe %s after %d follow=%t", r.GetSessionId(), r.GetAfterSeq(), r.GetFollow())
	s, err := a.live(r.GetSessionId())
	if err != nil {
		return err
	}
	return a.stream(stream.Context(), s, int(r.GetAfterSeq()), r.GetFollow(), func(e *agentsv1.Event) error {
		return stream.Send(&agentsv1.SubscribeResponse{Events: []*agentsv1.Event{e}})
	})
}

// stream sends the events after a number, with follow to the end of the turn under way.
func (a *fakeAgents) stream(ctx context.Context, s *fakeSession, at int, follow bool, send func(*agentsv1.Event) error) error {
	for {
		a.mu.Lock()
		log, changed, broken := s.log[min(at, len(s.log)):], a.changed, a.broken
		a.mu.Unlock()
		if broken {
			return status.Error(codes.Unavailable, `plugin "agent" died: signal: killed`)
		}
		for _, e := range log {
			raw, err := agents.Encode(e)
			if err != nil {
				return err
			}
			if err := send(&agentsv1.Event{Seq: e.Seq, Json: raw}); err != nil {
				return err
			}
			at++
			if _, ended := e.Data.(*agents.TurnEnd); ended && follow {
				return nil
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
