package llmopenai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-go/dsh/sdk/llm"
)

// Streams as the endpoints write them.
const (
	openaiText = `{"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5.1","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x1"}
{"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5.1","choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}],"usage":null}
{"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5.1","choices":[{"index":0,"delta":{"content":"lo €"},"logprobs":null,"finish_reason":null}],"usage":null}
{"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5.1","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}
{"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5.1","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0}}}
[DONE]`
	openaiTools = `{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"bash","arguments":""}}],"refusal":null},"finish_reason":null}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"comm"}}]},"finish_reason":null}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"bash_output","arguments":""}}]},"finish_reason":null}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":"and\":\"ls\"}"}}]},"finish_reason":null}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}
[DONE]`
	deepseek = `{"id":"9","object":"chat.completion.chunk","model":"deepseek-flash","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":""},"logprobs":null,"finish_reason":null}]}
{"id":"9","object":"chat.completion.chunk","model":"deepseek-flash","choices":[{"index":0,"delta":{"content":null,"reasoning_content":"The user"},"finish_reason":null}]}
{"id":"9","object":"chat.completion.chunk","model":"deepseek-flash","choices":[{"index":0,"delta":{"content":null,"reasoning_content":" wants \"ls\""},"finish_reason":null}]}
{"id":"9","object":"chat.completion.chunk","model":"deepseek-flash","choices":[{"index":0,"delta":{"content":"","reasoning_content":null,"tool_calls":[{"index":0,"id":"call_00_x","type":"function","function":{"name":"bash","arguments":""}}]},"finish_reason":null}]}
{"id":"9","object":"chat.completion.chunk","model":"deepseek-flash","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\":\"ls\"}"}}]},"finish_reason":null}]}
{"id":"9","object":"chat.completion.chunk","model":"deepseek-flash","choices":[{"index":0,"delta":{"content":"","reasoning_content":null},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12,"completion_tokens_details":{"reasoning_tokens":3}}}
[DONE]`
	openrouter = `{"id":"gen-1","provider":"X","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}]},"finish_reason":null,"native_finish_reason":null}],"error":null}
{"id":"gen-1","provider":"X","choices":[{"index":0,"delta":{"role":"assistant","content":"yes"},"finish_reason":"stop","native_finish_reason":"end_turn"}]}
[DONE]`
)

func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func content(text string) string {
	return `{"choices":[{"index":0,"delta":{"content":"` + text + `"}}]}`
}

func toolCalls(json string) string {
	return `{"choices":[{"index":0,"delta":{"tool_calls":[` + json + `]}}]}`
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stream string
		want   []string
		reason llm.Reason
	}{
		{"text", data(strings.Split(openaiText, "\n")...), []string{"text Hel", "text lo €", "usage 19+10 of 0"}, llm.Stop},
		{"parallel tool calls, interleaved", data(strings.Split(openaiTools, "\n")...),
			[]string{`call call_a bash {"command":"ls"}`, `call call_b bash_output {}`}, llm.Stop},
		{"reasoning of DeepSeek", data(strings.Split(deepseek, "\n")...),
			[]string{"reasoning The user", `reasoning  wants "ls"`, `call call_00_x bash {"command":"ls"}`, "usage 5+7 of 0"}, llm.Stop},
		{"reasoning of OpenRouter, with comments", ": OPENROUTER PROCESSING\n\n" + data(strings.Split(openrouter, "\n")...),
			[]string{"reasoning hm", "text yes"}, llm.Stop},
		{"carriage returns", strings.ReplaceAll(data(content("hi"), finish("stop"), "[DONE]"), "\n", "\r\n"), []string{"text hi"}, llm.Stop},
		{"no [DONE]", data(content("hi"), finish("stop")), []string{"text hi"}, llm.Stop},
		{"finish with the last text", data(`{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`), []string{"text hi"}, llm.Stop},
		{"nothing said", data(finish("stop"), "[DONE]"), nil, llm.Stop},

		{"the model's limit", data(content("hi"), finish("length"), "[DONE]"), []string{"text hi"}, llm.MaxTokens},
		{"a call that the limit cut is not made", data(toolCalls(`{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"comm"}}`), finish("length")), nil, llm.MaxTokens},
		{"the content filter", data(content("hi"), finish("content_filter")), []string{"text hi"}, llm.Refused},
		{"a refusal", data(`{"choices":[{"index":0,"delta":{"refusal":"I won't."}}]}`, finish("stop")), []string{"text I won't."}, llm.Refused},
		{"an unknown reason", data(content("hi"), finish("eos")), []string{"text hi"}, llm.Stop},
		{"tool calls that end with stop", data(toolCalls(`{"index":0,"id":"a","function":{"name":"bash","arguments":"{}"}}`), finish("stop")),
			[]string{"call a bash {}"}, llm.Stop},

		{"calls without an index", data(
			toolCalls(`{"id":"a","function":{"name":"bash","arguments":"{\"x\""}}`), toolCalls(`{"function":{"arguments":":1}"}}`),
			toolCalls(`{"id":"b","function":{"name":"bash","arguments":"{}"}}`), finish("tool_calls")),
			[]string{`call a bash {"x":1}`, "call b bash {}"}, llm.Stop},
		{"calls that all have the index 0", data(
			toolCalls(`{"index":0,"id":"a","function":{"name":"bash","arguments":"{}"}},{"index":0,"id":"b","function":{"name":"read","arguments":"{}"}}`), finish("tool_calls")),
			[]string{"call a bash {}", "call b read {}"}, llm.Stop},
		{"id and name repeated in every part", data(
			toolCalls(`{"index":0,"id":"a","function":{"name":"bash","arguments":"{"}}`), toolCalls(`{"index":0,"id":"a","function":{"name":"bash","arguments":"}"}}`), finish("tool_calls")),
			[]string{"call a bash {}"}, llm.Stop},
		{"calls without an id", data(toolCalls(`{"index":0,"function":{"name":"a","arguments":"{}"}},{"index":1,"function":{"name":"b","arguments":"{}"}}`), finish("tool_calls")),
			[]string{"call  a {}", "call  b {}"}, llm.Stop},
		{"other choices are not ours", data(`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}`, content("yes"), finish("stop")),
			[]string{"text yes"}, llm.Stop},
		{"an error after the finish costs nothing", data(content("hi"), finish("stop"), `{"error":{"message":"late"}}`), []string{"text hi"}, llm.Stop},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &endpoint{handler: stream(tt.stream)}
			o := e.generate(t, nil, nil)
			if o.err != nil || o.reason != tt.reason || !slices.Equal(o.events, tt.want) {
				t.Errorf("got  %q, %v, %v\nwant %q, %v", o.events, o.reason, o.err, tt.want, tt.reason)
			}
			if len(e.requests) != 1 {
				t.Errorf("%d requests", len(e.requests))
			}
		})
	}
}

func TestUsageNamesTheConfiguredWindow(t *testing.T) {
	e := &endpoint{handler: stream(data(strings.Split(openaiText, "\n")...))}
	o := e.generate(t, func(c *Config) { c.ContextWindow = 128000 }, nil)
	if want := "usage 19+10 of 128000"; !slices.Contains(o.events, want) {
		t.Errorf("got %q, want %s", o.events, want)
	}
}

// slowly sends pieces with a pause before each, then hangs until the caller is gone.
func slowly(pause time.Duration, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			<-time.After(pause)
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}
}

func TestASlowAnswerIsNotStalled(t *testing.T) {
	e := &endpoint{handler: slowly(170*time.Second, ": keep-alive\n\n", data(content("a")), ": keep-alive\n\n", data(content("b")), data(finish("stop"), "[DONE]"))}
	o := e.generate(t, nil, nil)
	if o.err != nil || !slices.Equal(o.events, []string{"text a", "text b"}) {
		t.Errorf("got %q, %v", o.events, o.err)
	}
}

func TestAStreamThatIsNotClosedAfterTheAnswerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		e := &endpoint{handler: slowly(0, data(content("a"), finish("stop")))}
		o := e.generateIn(t, t.Context(), nil, nil, nil)
		if o.err != nil || o.reason != llm.Stop || time.Since(begin) > finishGrace {
			t.Errorf("got %v, %v after %v", o.reason, o.err, time.Since(begin))
		}
	})
}

func TestASlowConsumerIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{handler: stream(data(content("a"), content("b"), finish("stop"), "[DONE]"))}
		o := e.generateIn(t, t.Context(), nil, nil, func(*llm.Event) error {
			<-time.After(time.Hour)
			return nil
		})
		if o.err != nil || !slices.Equal(o.events, []string{"text a", "text b"}) {
			t.Errorf("got %q, %v", o.events, o.err)
		}
	})
}

func TestCancelEndsTheRequest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		dialErr []error
	}{
		{"before the answer", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil},
		{"during the answer", slowly(0, data(content("a"))), nil},
		{"while it waits to try again", refuse(503, "", "Retry-After", "20"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				begin := time.Now()
				time.AfterFunc(10*time.Second, cancel)
				e := &endpoint{handler: tt.handler, dialErr: tt.dialErr}
				o := e.generateIn(t, ctx, nil, nil, nil)
				if !errors.Is(o.err, context.Canceled) || time.Since(begin) != 10*time.Second {
					t.Errorf("got %v after %v", o.err, time.Since(begin))
				}
			})
		})
	}
}

func TestAConsumerThatIsGoneEndsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		e := &endpoint{handler: slowly(0, data(content("a")))}
		o := e.generateIn(t, t.Context(), nil, nil, func(*llm.Event) error { return gone })
		if !errors.Is(o.err, gone) {
			t.Errorf("got %v", o.err)
		}
	})
}
