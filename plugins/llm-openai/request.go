package llmopenai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

// request is one conversation, ready to be sent as often as needed.
type request struct {
	*model
	name   string // the model's
	params openai.ChatCompletionNewParams
}

func (m *model) newRequest(req *llm.Request) *request {
	r := &request{model: m, name: req.GetModel()}
	if r.name == "" {
		r.name = m.config.Model
	}
	r.params.Model = r.name
	r.params.StreamOptions.IncludeUsage = openai.Bool(true)
	if m.config.MaxTokens > 0 {
		r.params.MaxTokens = openai.Int(m.config.MaxTokens)
	}
	if m.config.Temperature != nil {
		r.params.Temperature = openai.Float(*m.config.Temperature)
	}
	for _, msg := range req.GetMessages() {
		r.params.Messages = append(r.params.Messages, m.message(msg))
	}
	for _, tool := range req.GetTools() {
		r.params.Tools = append(r.params.Tools, openai.ChatCompletionToolUnionParam{OfFunction: &openai.ChatCompletionFunctionToolParam{Function: function(tool)}})
	}
	extra := map[string]any{"stream": true}
	maps.Copy(extra, m.config.ExtraBody)
	r.params.SetExtraFields(extra)
	return r
}

func (m *model) message(msg *llm.Message) openai.ChatCompletionMessageParamUnion {
	switch msg.GetRole() {
	case llm.System:
		return openai.SystemMessage(msg.GetText())
	case llm.Tool:
		return openai.ToolMessage(msg.GetText(), msg.GetToolCallId())
	case llm.Assistant:
		return m.assistantMessage(msg)
	}
	return openai.UserMessage(msg.GetText())
}

func (m *model) assistantMessage(msg *llm.Message) openai.ChatCompletionMessageParamUnion {
	var p openai.ChatCompletionAssistantMessageParam
	if msg.GetText() != "" || len(msg.GetToolCalls()) == 0 { // a message must have one of the two
		p.Content.OfString = openai.String(msg.GetText())
	}
	for _, call := range msg.GetToolCalls() {
		p.ToolCalls = append(p.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
			ID:       call.GetId(),
			Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: call.GetName(), Arguments: call.GetArguments()},
		}})
	}
	if m.sendReasoning && len(p.ToolCalls) > 0 {
		p.SetExtraFields(map[string]any{"reasoning_content": msg.GetReasoning()}) // also an empty one
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &p}
}

// function describes a tool. The schema goes out as the tool wrote it: through a map it would lose its order.
func function(tool *toolsv1.Tool) shared.FunctionDefinitionParam {
	schema := json.RawMessage(tool.GetInputSchema())
	if !json.Valid(schema) {
		schema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return param.Override[shared.FunctionDefinitionParam](struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}{tool.GetName(), tool.GetDescription(), schema})
}

// errStalled is the cause of a context that ended because nothing came.
var errStalled = errors.New("stalled")

// finishGrace is how long what follows the end of an answer, its usage, is waited for.
const finishGrace = 5 * time.Second

// send sends the request once and passes the answer on. Its error is a *failure, that of emit, or of ctx.
func (r *request) send(ctx context.Context, emit func(*llm.Event) error) (llm.Reason, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := &stallWatch{limit: r.stall}
	watch.timer = time.AfterFunc(r.stall, func() { cancel(errStalled) })
	defer watch.timer.Stop()

	response, err := r.post(ctx)
	watch.timer.Stop()
	if response != nil && response.Body != nil {
		defer response.Body.Close()
	}
	if err != nil {
		return 0, r.requestFailure(ctx, response, err)
	}
	watch.body = response.Body
	response.Body = watch
	a := &answer{request: r, emit: emit, watch: watch}
	return a.read(ctx, response)
}

// post returns the response once its headers are there.
func (r *request) post(ctx context.Context) (*http.Response, error) {
	var response *http.Response
	options := []option.RequestOption{
		option.WithBaseURL(r.config.BaseURL),
		option.WithHTTPClient(&http.Client{Transport: r.transport}),
		option.WithMaxRetries(0), // ours are logged, and stop once an answer has begun
		option.WithResponseBodyInto(&response),
		option.WithHeader("Accept", "text/event-stream"),
		option.WithHeader("User-Agent", "dsh"),
	}
	if r.config.APIKey != "" {
		options = append(options, option.WithAPIKey(r.config.APIKey))
	}
	for name, value := range r.config.Headers {
		options = append(options, option.WithHeader(name, value))
	}
	if base, err := url.Parse(r.config.BaseURL); err == nil {
		for name, values := range base.Query() { // resolving the path against the base URL drops them
			for _, value := range values {
				options = append(options, option.WithQueryAdd(name, value))
			}
		}
	}
	// The service and not openai.NewClient, which reads the environment.
	service := openai.NewChatCompletionService(options...)
	_, err := service.New(ctx, r.params)
	return response, err
}

// stallWatch is a response's body that ends the request when a read takes too long. What its reader does between reads does
// not count.
type stallWatch struct {
	body  io.ReadCloser
	timer *time.Timer
	limit time.Duration
}

func (w *stallWatch) Read(p []byte) (int, error) {
	w.timer.Reset(w.limit)
	defer w.timer.Stop()
	return w.body.Read(p)
}

func (w *stallWatch) Close() error { return w.body.Close() }
