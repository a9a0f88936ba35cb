// Package agents is the seam of sessions and their turns: its client, and the events of a session's log.
package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
)

// Seam is what a plugin provides or injects.
var Seam = sdk.Seam{Name: "agents", Service: "dsh.agents.v1.Agents"}

// Client calls the seam. Its errors are gRPC statuses: NotFound for an unknown session, InvalidArgument, AlreadyExists for a
// session that is loaded already, FailedPrecondition for a stored session that cannot be used.
type Client struct{ rpc agentsv1.AgentsClient }

// NewClient makes a client on a connection: for a plugin that of its [sdk.Context].
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{agentsv1.NewAgentsClient(conn)}
}

// Create makes a session whose workspace is cwd, an absolute path of a directory. The session is stored when it returns.
func (c *Client) Create(ctx context.Context, cwd string) (sessionID string, err error) {
	answer, err := c.rpc.Create(ctx, &agentsv1.CreateRequest{Cwd: cwd})
	return answer.GetSessionId(), err
}

// Load makes a stored session live again. It returns the session's workspace and the number of its last event.
func (c *Client) Load(ctx context.Context, sessionID string) (cwd string, lastSeq uint64, err error) {
	answer, err := c.rpc.Load(ctx, &agentsv1.LoadRequest{SessionId: sessionID})
	return answer.GetCwd(), answer.GetLastSeq(), err
}

// SessionInfo describes a stored session.
type SessionInfo struct {
	ID  string
	Cwd string
	// Title comes from the first prompt; empty before it.
	Title   string
	Updated time.Time
}

// List returns a page of the stored sessions, newest first: those of the directory cwd, or all when it is empty. pageToken is
// empty for the first page; an empty next says that this was the last.
func (c *Client) List(ctx context.Context, cwd, pageToken string) (page []SessionInfo, next string, err error) {
	answer, err := c.rpc.List(ctx, &agentsv1.ListRequest{Cwd: cwd, PageToken: pageToken})
	if err != nil {
		return nil, "", err
	}
	for _, s := range answer.GetSessions() {
		page = append(page, SessionInfo{s.GetSessionId(), s.GetCwd(), s.GetTitle(), s.GetUpdated().AsTime()})
	}
	return page, answer.GetNextPageToken(), nil
}

// Close cancels what the session does, waits for it, and frees the session. It stays stored.
func (c *Client) Close(ctx context.Context, sessionID string) error {
	_, err := c.rpc.Close(ctx, &agentsv1.CloseRequest{SessionId: sessionID})
	return err
}

// Delete closes the session and removes it for good. Deleting an unknown session is harmless.
func (c *Client) Delete(ctx context.Context, sessionID string) error {
	_, err := c.rpc.Delete(ctx, &agentsv1.DeleteRequest{SessionId: sessionID})
	return err
}

// Prompt is a message to a session.
type Prompt struct {
	SessionID string
	// PromptID is chosen by the caller, unique within the session: what Cancel names.
	PromptID string
	Content  []ContentBlock
	// Cancelled says that the person cancelled before the message was sent: it is logged, and the model is not called.
	Cancelled bool
	// CanAsk says that the caller shows each [ToolAsk] to a person and answers it. Otherwise calls that need approval are refused.
	CanAsk bool
}

// Prompt sends a message and returns when it is in the session's queue, from where Cancel reaches it. The events run from the
// turn/start to the turn/end of the turn that takes it. Ending ctx ends the events, not the turn.
func (c *Client) Prompt(ctx context.Context, p Prompt) (*Events, error) {
	request := &agentsv1.PromptRequest{SessionId: p.SessionID, PromptId: p.PromptID, Cancelled: p.Cancelled, CanAsk: p.CanAsk}
	for _, b := range p.Content {
		block, err := b.proto()
		if err != nil {
			return nil, err
		}
		request.Content = append(request.Content, block)
	}
	stream, err := c.rpc.Prompt(ctx, request)
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if first.GetAccepted() == nil {
		return nil, fmt.Errorf("prompt %s of session %s: the first response is %T, not accepted", p.PromptID, p.SessionID, first.GetResponse())
	}
	return &Events{recv: func() ([]*agentsv1.Event, error) {
		answer, err := stream.Recv()
		return answer.GetEvents().GetEvents(), err
	}}, nil
}

// Cancel ends the turn that takes a prompt, also when it has not started yet. It returns at once; turn/end tells. A prompt that is
// unknown or over is left alone.
func (c *Client) Cancel(ctx context.Context, sessionID, promptID string) error {
	_, err := c.rpc.Cancel(ctx, &agentsv1.CancelRequest{SessionId: sessionID, PromptId: promptID})
	return err
}

// Answer answers a call that asks for approval: its last [ToolAsk]. An answer to a call that does not ask, or no longer, is ignored.
func (c *Client) Answer(ctx context.Context, sessionID, callID string, o Outcome) error {
	_, err := c.rpc.Answer(ctx, &agentsv1.AnswerRequest{SessionId: sessionID, CallId: callID, Outcome: o.proto()})
	return err
}

// Option is something a person can choose for a session.
type Option struct {
	// ID is "model" or "mode".
	ID string
	// Name is for people.
	Name string
	// Current is the ID of the value in force.
	Current string
	Values  []OptionValue
}

// OptionValue is one of an option's values. Name and Description are for people.
type OptionValue struct{ ID, Name, Description string }

// Options returns what can be chosen for a live session: only options with more than one value.
func (c *Client) Options(ctx context.Context, sessionID string) ([]Option, error) {
	answer, err := c.rpc.Options(ctx, &agentsv1.OptionsRequest{SessionId: sessionID})
	if err != nil {
		return nil, err
	}
	var options []Option
	for _, o := range answer.GetOptions() {
		option := Option{ID: o.GetId(), Name: o.GetName(), Current: o.GetCurrent()}
		for _, v := range o.GetValues() {
			option.Values = append(option.Values, OptionValue{v.GetId(), v.GetName(), v.GetDescription()})
		}
		options = append(options, option)
	}
	return options, nil
}

// SetOption chooses an option's value, from the next model request or tool call on. The choice is part of the session. A value that
// is not offered is refused as InvalidArgument.
func (c *Client) SetOption(ctx context.Context, sessionID, option, value string) error {
	_, err := c.rpc.SetOption(ctx, &agentsv1.SetOptionRequest{SessionId: sessionID, Option: option, Value: value})
	return err
}

// Inject adds context for the next model request; it starts no turn. A second injection with a key is dropped; an empty key is none.
func (c *Client) Inject(ctx context.Context, sessionID, text string, source Source, key string) error {
	_, err := c.rpc.Inject(ctx, &agentsv1.InjectRequest{
		SessionId: sessionID, Text: text, Key: key,
		Source: &agentsv1.Source{Kind: source.Kind, Plugin: source.Plugin},
	})
	return err
}

// Subscribe streams a session's events after the number after: those in the log and, with follow, those to come until the session
// has no turn under way. With follow the session is a live one. Otherwise it may be any stored session, also one that another process
// has: it is only read.
func (c *Client) Subscribe(ctx context.Context, sessionID string, after uint64, follow bool) (*Events, error) {
	stream, err := c.rpc.Subscribe(ctx, &agentsv1.SubscribeRequest{SessionId: sessionID, AfterSeq: after, Follow: follow})
	if err != nil {
		return nil, err
	}
	return &Events{recv: func() ([]*agentsv1.Event, error) {
		answer, err := stream.Recv()
		return answer.GetEvents(), err
	}}, nil
}

// Events is a stream of a session's events, read by one goroutine. The context of the call that made it frees it.
type Events struct {
	recv func() ([]*agentsv1.Event, error)
	got  []*agentsv1.Event // received, not read yet
}

// Next returns the next event, [io.EOF] after the last one. The session waits for a reader that falls far behind.
func (e *Events) Next() (Event, error) {
	line, err := e.NextLine()
	if err != nil {
		return Event{}, err
	}
	return Decode(line)
}

// NextLine is Next for the event as it stands in the log, without the newline.
func (e *Events) NextLine() ([]byte, error) {
	for len(e.got) == 0 {
		events, err := e.recv()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		if err != nil {
			return nil, err
		}
		e.got = events
	}
	next := e.got[0]
	e.got = e.got[1:]
	return next.GetJson(), nil
}

func (b ContentBlock) proto() (*agentsv1.ContentBlock, error) {
	switch b.Type {
	case BlockText:
		return &agentsv1.ContentBlock{Block: &agentsv1.ContentBlock_Text{Text: b.Text}}, nil
	case BlockResourceLink:
		return &agentsv1.ContentBlock{Block: &agentsv1.ContentBlock_ResourceLink_{
			ResourceLink: &agentsv1.ContentBlock_ResourceLink{Uri: b.URI, Name: b.Name},
		}}, nil
	case BlockResource:
		return &agentsv1.ContentBlock{Block: &agentsv1.ContentBlock_Resource_{
			Resource: &agentsv1.ContentBlock_Resource{Uri: b.URI, MimeType: b.MimeType, Text: b.Text},
		}}, nil
	}
	return nil, fmt.Errorf("content block of unknown type %q", b.Type)
}

var outcomes = map[Outcome]agentsv1.AnswerRequest_Outcome{
	OutcomeAllowed:           agentsv1.AnswerRequest_OUTCOME_ALLOWED,
	OutcomeAllowedForSession: agentsv1.AnswerRequest_OUTCOME_ALLOWED_FOR_SESSION,
	OutcomeRejected:          agentsv1.AnswerRequest_OUTCOME_REJECTED,
}

func (o Outcome) proto() agentsv1.AnswerRequest_Outcome { return outcomes[o] }

// OutcomeOf is an answer as it stands in the log: whatever is not an approval is a rejection.
func OutcomeOf(o agentsv1.AnswerRequest_Outcome) Outcome {
	switch o {
	case agentsv1.AnswerRequest_OUTCOME_ALLOWED:
		return OutcomeAllowed
	case agentsv1.AnswerRequest_OUTCOME_ALLOWED_FOR_SESSION:
		return OutcomeAllowedForSession
	default:
		return OutcomeRejected
	}
}

// BlockOf is a content block as it stands in the log; false when the block is empty or of a kind that is not known here.
func BlockOf(block *agentsv1.ContentBlock) (ContentBlock, bool) {
	switch b := block.GetBlock().(type) {
	case *agentsv1.ContentBlock_Text:
		return ContentBlock{Type: BlockText, Text: b.Text}, true
	case *agentsv1.ContentBlock_ResourceLink_:
		return ContentBlock{Type: BlockResourceLink, URI: b.ResourceLink.GetUri(), Name: b.ResourceLink.GetName()}, true
	case *agentsv1.ContentBlock_Resource_:
		return ContentBlock{Type: BlockResource, URI: b.Resource.GetUri(), MimeType: b.Resource.GetMimeType(), Text: b.Resource.GetText()}, true
	}
	return ContentBlock{}, false
}
