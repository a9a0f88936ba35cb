package llmopenai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"google.golang.org/grpc/codes"

	"github.com/dsh-go/dsh/sdk/llm"
)

// request is one conversation, ready to be sent as often as needed.
type request struct {
	*model
	ModelConfig // of the model it goes to
	json        []byte
}

func (m *model) newRequest(req *llm.Request) (*request, error) {
	r := &request{model: m, ModelConfig: m.settings(req.GetModel())}
	var err error
	if r.json, err = r.body(req); err != nil {
		return nil, r.fail(codes.InvalidArgument, "write the request to the model %q: %v", r.ID, err)
	}
	return r, nil
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
		option.WithRequestBody("application/json", r.json),
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
	_, err := service.New(ctx, openai.ChatCompletionNewParams{}) // the body is ours
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
