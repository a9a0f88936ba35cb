package llmopenai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failure is why a request failed, for the person who can do something about it. It never holds the key.
type failure struct {
	code codes.Code
	text string
	// retry: it may pass, and nothing of an answer has come.
	retry bool
	after time.Duration // the endpoint asked to wait this long; 0: it did not
}

func (f *failure) Error() string { return f.text }

// GRPCStatus makes the failure travel with its code.
func (f *failure) GRPCStatus() *status.Status { return status.New(f.code, f.text) }

const (
	firstBackoff = 500 * time.Millisecond
	// maxWait bounds what an endpoint may ask to wait; beyond it the person should know at once.
	maxWait = 30 * time.Second
)

// retryIn says whether to try again after this attempt, counted from 0, and when.
func (f *failure) retryIn(attempt int) (time.Duration, bool) {
	if !f.retry || f.after > maxWait {
		return 0, false
	}
	if f.after > 0 {
		return f.after, true
	}
	backoff := min(firstBackoff<<attempt, maxWait)
	return backoff - rand.N(backoff/4), true
}

// fail makes a failure of words about this request.
func (r *request) fail(code codes.Code, format string, args ...any) *failure {
	return &failure{code: code, text: r.clear(fmt.Sprintf(format, args...))}
}

// clear removes the key and other secrets, e.g. from a message in which an endpoint repeats them. Clear what comes from outside
// before it is cut to size: half a key is a secret too.
func (r *request) clear(text string) string {
	const shortest = 6 // shorter ones are stand-ins for local servers, and parts of words
	secrets := []string{r.config.APIKey}
	for _, value := range r.config.Headers {
		secrets = append(secrets, value, strings.TrimPrefix(value, "Bearer "))
	}
	if base, err := url.Parse(r.config.BaseURL); err == nil {
		password, _ := base.User.Password()
		secrets = append(secrets, password)
		for _, values := range base.Query() {
			secrets = append(secrets, values...)
		}
	}
	for _, secret := range secrets {
		if len(secret) >= shortest {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return text
}

// requestFailure is why no stream began: response is nil, or has the status of an error.
func (r *request) requestFailure(ctx context.Context, response *http.Response, err error) error {
	if response != nil && response.StatusCode >= 400 {
		return r.statusFailure(response)
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		return r.fail(codes.Unavailable, "%s did not answer for %v: is the model %q still loading? raise \"stallTimeoutMs\" if it takes longer", r.endpoint, r.stall, r.ID)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the URL may hold secrets
	}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	timeout, isTimeout := errors.AsType[net.Error](err)
	var f *failure
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		f = r.fail(codes.Unavailable, "cannot reach the model at %s: connection refused: is the server running, and is \"baseURL\" right?", r.endpoint)
		f.retry = true
	case isDNS && dns.IsNotFound:
		f = r.fail(codes.Unavailable, "cannot reach the model at %s: there is no host %q: check \"baseURL\"", r.endpoint, dns.Name)
	case isDNS:
		f = r.fail(codes.Unavailable, "cannot reach the model at %s: looking up the host %q failed: check the network", r.endpoint, dns.Name)
		f.retry = true
	case isTimeout && timeout.Timeout():
		f = r.fail(codes.Unavailable, "cannot reach the model at %s: no connection within %d ms: check the network and \"baseURL\"", r.endpoint, r.config.ConnectTimeoutMS)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f = r.fail(codes.Unavailable, "%s closed the connection before it answered", r.endpoint)
		f.retry = true
	default:
		f = r.fail(codes.Unavailable, "cannot reach the model at %s: %v", r.endpoint, err)
	}
	return f
}

// statusFailure is an answer with the status of an error.
func (r *request) statusFailure(response *http.Response) *failure {
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // what could be read says enough
	said := serverMessage([]byte(r.clear(string(body))))
	if said != "" {
		said = ": " + said
	}
	at, code := r.endpoint, response.StatusCode
	var f *failure
	switch {
	case code == http.StatusUnauthorized && r.config.APIKey == "":
		f = r.fail(codes.Unauthenticated, "%s wants an API key (401)%s: set \"apiKey\"", at, said)
	case code == http.StatusUnauthorized:
		f = r.fail(codes.Unauthenticated, "%s refused the API key (401)%s: check \"apiKey\"", at, said)
	case code == http.StatusPaymentRequired:
		f = r.fail(codes.ResourceExhausted, "%s wants to be paid (402)%s: check the account's balance", at, said)
	case code == http.StatusForbidden:
		f = r.fail(codes.PermissionDenied, "%s does not allow this key to use the model %q (403)%s", at, r.ID, said)
	case code == http.StatusNotFound:
		f = r.fail(codes.NotFound, "%s knows no model %q, or no chat completions (404)%s: check \"model\" and \"baseURL\"", at, r.ID, said)
	case code == http.StatusTooManyRequests:
		f = r.fail(codes.ResourceExhausted, "%s limits requests to the model %q (429)%s", at, r.ID, said)
		f.retry = !bytes.Contains(body, []byte("insufficient_quota")) // the account is empty, waiting does not help
	case code >= 500:
		f = r.fail(codes.Unavailable, "%s failed at the model %q (%d)%s", at, r.ID, code, said)
		f.retry = true
	default:
		f = r.fail(codes.InvalidArgument, "%s did not accept the request to the model %q (%d)%s", at, r.ID, code, said)
	}
	if f.after = retryAfter(response.Header); f.after > maxWait {
		f.text += fmt.Sprintf(": it asks to wait %v", f.after.Round(time.Second))
	}
	return f
}

// unfinished is a stream that ended before its finish reason.
func (a *answer) unfinished(ctx context.Context, response *http.Response, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return a.fail(codes.Unavailable, "the answer of the model %q at %s stalled: nothing came for %v", a.ID, a.endpoint, a.stall)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	contentType := response.Header.Get("Content-Type")
	var f *failure
	switch {
	case a.choices > 0 || err != nil:
		f = a.fail(codes.Unavailable, "the answer of the model %q at %s was cut: the stream ended before the answer did", a.ID, a.endpoint)
	case a.chunks > 0:
		f = a.fail(codes.Unavailable, "the model %q at %s gave no answer: the stream had no choices", a.ID, a.endpoint)
	case contentType != "" && !strings.Contains(contentType, "event-stream"):
		return a.fail(codes.FailedPrecondition, "%s answered with %q in place of a stream: check \"baseURL\"", a.endpoint, contentType)
	default:
		f = a.fail(codes.Unavailable, "the model %q at %s gave no answer: the stream was empty", a.ID, a.endpoint)
	}
	f.retry = a.chunks == 0
	return f
}

func (a *answer) badChunk(data []byte) error {
	return a.fail(codes.Unavailable, "the answer of the model %q at %s cannot be read: %q is not JSON", a.ID, a.endpoint, clip(a.clear(string(data)), 80))
}

// streamError is an error object within the stream.
func (a *answer) streamError(object []byte) error {
	object = []byte(a.clear(string(object)))
	said := serverMessage(object)
	if said == "" {
		said = clip(string(object), 200)
	}
	f := a.fail(codes.Unavailable, "%s failed at the model %q: %s", a.endpoint, a.ID, said)
	var e struct {
		Code any `json:"code"`
	}
	if json.Unmarshal(object, &e) == nil {
		code, _ := strconv.Atoi(fmt.Sprint(e.Code))
		f.retry = a.chunks == 0 && (code == http.StatusTooManyRequests || code >= 500)
	}
	return f
}

func (a *answer) gaveUp() error {
	return a.fail(codes.Unavailable, "%s gave up on the answer of the model %q (%s): try again", a.endpoint, a.ID, a.finish)
}

func (a *answer) namelessCall() error {
	return a.fail(codes.Unavailable, "the model %q at %s asked for a tool without naming it: does it support tools?", a.ID, a.endpoint)
}

// serverMessage finds the words for people in an error as the endpoints write them; empty: there are none.
func serverMessage(body []byte) string {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	body = bytes.TrimSpace(body)
	if err := json.Unmarshal(body, &e); err != nil {
		var s string
		if json.Unmarshal(body, &s) == nil {
			return clip(s, 500)
		}
		if bytes.HasPrefix(body, []byte("<")) || json.Valid(body) { // a page, or JSON of another shape
			return ""
		}
		return clip(string(body), 200)
	}
	for _, s := range []string{e.Message, e.Detail} {
		if s != "" {
			return clip(s, 500)
		}
	}
	if len(e.Error) > 0 && !bytes.Equal(e.Error, []byte("null")) {
		return serverMessage(e.Error)
	}
	return ""
}

// clip makes one line of at most limit characters.
func clip(text string, limit int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if characters := []rune(text); len(characters) > limit {
		return string(characters[:limit]) + "…"
	}
	return text
}

// retryAfter is how long the endpoint asks to wait; 0: it does not say.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 1e6) * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
