package llmopenai

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func openaiError(message, code string) string {
	return fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error","param":null,"code":%q}}`, message, code)
}

func TestFailuresSayWhatToDo(t *testing.T) {
	const at = "http://model.test/v1"
	for _, tt := range []struct {
		name     string
		handler  http.HandlerFunc
		dialErr  []error
		change   func(*Config)
		want     string
		code     codes.Code
		attempts int
	}{
		{name: "refused connection", dialErr: []error{refused(), refused(), refused()}, attempts: 3, code: codes.Unavailable,
			want: `cannot reach the model at ` + at + `: connection refused: is the server running, and is "baseURL" right? (tried 3 times)`},
		{name: "unknown host", dialErr: []error{&net.DNSError{Err: "no such host", Name: "model.test", IsNotFound: true}}, attempts: 1, code: codes.Unavailable,
			want: `cannot reach the model at ` + at + `: there is no host "model.test": check "baseURL"`},
		{name: "broken name service", dialErr: slices.Repeat([]error{&net.DNSError{Err: "server misbehaving", Name: "model.test", IsTemporary: true}}, 3), attempts: 3, code: codes.Unavailable,
			want: `cannot reach the model at ` + at + `: looking up the host "model.test" failed: check the network (tried 3 times)`},
		{name: "no route in time", dialErr: []error{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}}, attempts: 1, code: codes.Unavailable,
			want: `cannot reach the model at ` + at + `: no connection within 10000 ms: check the network and "baseURL"`},
		{name: "401", handler: refuse(401, openaiError("Incorrect API key provided: "+key+".", "invalid_api_key")), attempts: 1, code: codes.Unauthenticated,
			want: at + ` refused the API key (401): Incorrect API key provided: [secret].: check "apiKey"`},
		{name: "401 without a key", change: func(c *Config) { c.APIKey = "" }, handler: refuse(401, `{"detail":"Not authenticated"}`), attempts: 1, code: codes.Unauthenticated,
			want: at + ` wants an API key (401): Not authenticated: set "apiKey"`},
		{name: "402", handler: refuse(402, openaiError("Insufficient Balance", "x")), attempts: 1, code: codes.ResourceExhausted,
			want: at + ` wants to be paid (402): Insufficient Balance: check the account's balance`},
		{name: "403", handler: refuse(403, openaiError("Country not supported", "x")), attempts: 1, code: codes.PermissionDenied,
			want: at + ` does not allow this key to use the model "tiny" (403): Country not supported`},
		{name: "404", handler: refuse(404, `{"error":"model 'tiny' not found"}`), attempts: 1, code: codes.NotFound,
			want: at + ` knows no model "tiny", or no chat completions (404): model 'tiny' not found: check "model" and "baseURL"`},
		{name: "404 as a page", handler: refuse(404, "<html><body>nginx</body></html>"), attempts: 1, code: codes.NotFound,
			want: at + ` knows no model "tiny", or no chat completions (404): check "model" and "baseURL"`},
		{name: "400", handler: refuse(400, openaiError("maximum context length is 4096 tokens", "context_length_exceeded")), attempts: 1, code: codes.InvalidArgument,
			want: at + ` did not accept the request to the model "tiny" (400): maximum context length is 4096 tokens`},
		{name: "429", handler: refuse(429, openaiError("Rate limit reached", "rate_limit_exceeded"), "Retry-After", "7"), attempts: 3, code: codes.ResourceExhausted,
			want: at + ` limits requests to the model "tiny" (429): Rate limit reached (tried 3 times)`},
		{name: "429 that asks for too long a wait", handler: refuse(429, openaiError("Rate limit reached", "rate_limit_exceeded"), "Retry-After", "300"), attempts: 1, code: codes.ResourceExhausted,
			want: at + ` limits requests to the model "tiny" (429): Rate limit reached: it asks to wait 5m0s`},
		{name: "429 because the account is empty", handler: refuse(429, openaiError("You exceeded your current quota", "insufficient_quota")), attempts: 1, code: codes.ResourceExhausted,
			want: at + ` limits requests to the model "tiny" (429): You exceeded your current quota`},
		{name: "500", handler: refuse(500, `internal error`), attempts: 3, code: codes.Unavailable,
			want: at + ` failed at the model "tiny" (500): internal error (tried 3 times)`},
		{name: "closed before the answer", handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, attempts: 3, code: codes.Unavailable,
			want: at + ` closed the connection before it answered (tried 3 times)`},
		{name: "silence before the answer", handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, attempts: 1, code: codes.Unavailable,
			want: at + ` did not answer for 3m0s: is the model "tiny" still loading? raise "stallTimeoutMs" if it takes longer`},
		{name: "silence during the answer", handler: slowly(0, data(content("a"))), attempts: 1, code: codes.Unavailable,
			want: `the answer of the model "tiny" at ` + at + ` stalled: nothing came for 3m0s`},
		{name: "stream cut", handler: stream(data(content("a"))), attempts: 1, code: codes.Unavailable,
			want: `the answer of the model "tiny" at ` + at + ` was cut: the stream ended before the answer did`},
		{name: "stream cut by [DONE]", handler: stream(data(content("a"), "[DONE]")), attempts: 1, code: codes.Unavailable,
			want: `the answer of the model "tiny" at ` + at + ` was cut: the stream ended before the answer did`},
		{name: "connection lost during the answer", attempts: 1, code: codes.Unavailable,
			handler: func(w http.ResponseWriter, r *http.Request) {
				stream(data(content("a")))(w, r)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			},
			want: `the answer of the model "tiny" at ` + at + ` was cut: the stream ended before the answer did`},
		{name: "invalid JSON", handler: stream(data(content("a"), `{"choices":[{"del`)), attempts: 1, code: codes.Unavailable,
			want: `the answer of the model "tiny" at ` + at + ` cannot be read: "{\"choices\":[{\"del" is not JSON`},
		{name: "empty choices", handler: stream(data(`{"choices":[]}`, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`, "[DONE]")), attempts: 1, code: codes.Unavailable,
			want: `the model "tiny" at ` + at + ` gave no answer: the stream had no choices`},
		{name: "empty stream", handler: stream(data("[DONE]")), attempts: 3, code: codes.Unavailable,
			want: `the model "tiny" at ` + at + ` gave no answer: the stream was empty (tried 3 times)`},
		{name: "a page in place of a stream", handler: refuse(200, "<html>hello</html>", "Content-Type", "text/html"), attempts: 1, code: codes.FailedPrecondition,
			want: at + ` answered with "text/html" in place of a stream: check "baseURL"`},
		{name: "error in the stream", handler: stream(data(content("a"), `{"error":{"message":"The server had an error","type":"server_error","code":500}}`)), attempts: 1, code: codes.Unavailable,
			want: at + ` failed at the model "tiny": The server had an error`},
		{name: "error event", handler: stream("event: error\n" + data(`{"message":"out of memory"}`)), attempts: 1, code: codes.Unavailable,
			want: at + ` failed at the model "tiny": out of memory`},
		{name: "overload at the start of the stream", handler: stream(data(`{"error":{"message":"overloaded","code":"503"}}`)), attempts: 3, code: codes.Unavailable,
			want: at + ` failed at the model "tiny": overloaded (tried 3 times)`},
		{name: "error in the stream that repeats the key", handler: stream(data(`{"error":"bad key ` + key + `"}`)), attempts: 1, code: codes.Unavailable,
			want: at + ` failed at the model "tiny": bad key [secret]`},
		{name: "gave up", handler: stream(data(content("a"), finish("insufficient_system_resource"))), attempts: 1, code: codes.Unavailable,
			want: at + ` gave up on the answer of the model "tiny" (insufficient_system_resource): try again`},
		{name: "nameless call", handler: stream(data(toolCalls(`{"index":0,"id":"a","function":{"arguments":"{}"}}`), finish("tool_calls"))), attempts: 1, code: codes.Unavailable,
			want: `the model "tiny" at ` + at + ` asked for a tool without naming it: does it support tools?`},
		{name: "a header's secret", change: func(c *Config) { c.Headers = map[string]string{"Authorization": "Bearer hdr-secret-value"} }, handler: refuse(400, "got hdr-secret-value"), attempts: 1, code: codes.InvalidArgument,
			want: at + ` did not accept the request to the model "tiny" (400): got [secret]`},
		{name: "secrets in the URL", change: func(c *Config) { c.BaseURL = "http://user:" + key + "@model.test/v1?code=" + key }, dialErr: []error{net.UnknownNetworkError("x")}, attempts: 1, code: codes.Unavailable,
			want: `cannot reach the model at ` + at + `: unknown network x`},
		{name: "a secret at the cut of a long message", handler: refuse(400, strings.Repeat("x", 190)+key), attempts: 1, code: codes.InvalidArgument,
			want: at + ` did not accept the request to the model "tiny" (400): ` + strings.Repeat("x", 190) + "[secret]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &endpoint{handler: tt.handler, dialErr: tt.dialErr}
			o := e.generate(t, tt.change, nil)
			if o.err == nil || o.err.Error() != tt.want {
				t.Fatalf("got  %v\nwant %s", o.err, tt.want)
			}
			if code := grpcstatus.Code(o.err); code != tt.code {
				t.Errorf("code %v, want %v", code, tt.code)
			}
			retries := slices.DeleteFunc(o.events, func(event string) bool { return !strings.HasPrefix(event, "retry ") })
			for _, event := range retries {
				if reason, _, _ := strings.Cut(tt.want, " (tried"); !strings.HasPrefix(event, "retry "+reason+" in ") {
					t.Errorf("event %q", event)
				}
			}
			if len(retries) != tt.attempts-1 {
				t.Errorf("%d attempts and the events %q", tt.attempts, retries)
			}
			attempts := max(len(e.requests), e.dials)
			if attempts != tt.attempts {
				t.Errorf("%d attempts, want %d", attempts, tt.attempts)
			}
			if logged := strings.Count(o.log, "trying again"); logged != tt.attempts-1 {
				t.Errorf("%d attempts, but the log says\n%s", tt.attempts, o.log)
			}
		})
	}
}

func TestAFailureThatPassesIsReportedAsItHappens(t *testing.T) {
	good := stream(data(content("hi"), finish("stop"), "[DONE]"))
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		dialErr []error
		waits   [2]time.Duration // at least and at most, before the second attempt
		retries []string
	}{
		{"refused once", good, []error{refused()}, [2]time.Duration{375 * time.Millisecond, 500 * time.Millisecond},
			[]string{`cannot reach the model at http://model.test/v1: connection refused: is the server running, and is "baseURL" right?`}},
		{"500 once", inTurn(refuse(500, ""), good), nil, [2]time.Duration{375 * time.Millisecond, 500 * time.Millisecond},
			[]string{`http://model.test/v1 failed at the model "tiny" (500)`}},
		{"429 with seconds", inTurn(refuse(429, "", "Retry-After", "20"), good), nil, [2]time.Duration{20 * time.Second, 20 * time.Second},
			[]string{`http://model.test/v1 limits requests to the model "tiny" (429)`}},
		{"twice", inTurn(refuse(502, ""), refuse(503, ""), good), nil, [2]time.Duration{375 * time.Millisecond, 500 * time.Millisecond},
			[]string{`http://model.test/v1 failed at the model "tiny" (502)`, `http://model.test/v1 failed at the model "tiny" (503)`}},
		{"cut before the first chunk", inTurn(stream(""), good), nil, [2]time.Duration{375 * time.Millisecond, 500 * time.Millisecond},
			[]string{`the model "tiny" at http://model.test/v1 gave no answer: the stream was empty`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // a bubble's clock begins then
			var at []time.Duration
			e := &endpoint{dialErr: tt.dialErr, handler: func(w http.ResponseWriter, r *http.Request) {
				at = append(at, time.Since(begin))
				tt.handler(w, r)
			}}
			o := e.generate(t, nil, nil)
			if n := len(tt.retries); o.err != nil || len(o.events) != n+1 || o.events[n] != "text hi" {
				t.Fatalf("got %q, %v", o.events, o.err)
			}
			wait := at[len(at)-1]
			if len(tt.dialErr) == 0 {
				wait = at[1] - at[0]
			}
			for i, reason := range tt.retries {
				said, announced, _ := strings.Cut(o.events[i], " in ")
				if said != "retry "+reason || i == 0 && announced != wait.Truncate(time.Millisecond).String() {
					t.Errorf("event %q, waited %v", o.events[i], wait)
				}
			}
			if wait < tt.waits[0] || wait > tt.waits[1] {
				t.Errorf("waited %v, want %v", wait, tt.waits)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "0.5": 500 * time.Millisecond, "-1": 0, "soon": 0, "NaN": 0,
		"1e300": 1e6 * time.Second, "Mon, 02 Jan 2006 15:04:05 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
