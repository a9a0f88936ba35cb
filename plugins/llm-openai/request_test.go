package llmopenai

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

var conversation = &llm.Request{
	SessionId: "s1",
	Messages: []*llm.Message{
		{Role: llm.System, Text: "Be brief."},
		{Role: llm.User, Text: "list <files> & go"},
		{Role: llm.Assistant, Text: "Sure.", Reasoning: "think", ToolCalls: []*llm.ToolCall{
			{Id: "a", Name: "bash", Arguments: `{"command":"ls"}`}, {Id: "b", Name: "bash", Arguments: `{"comm`}}},
		{Role: llm.Tool, ToolCallId: "a", Text: "x.go"},
		{Role: llm.Tool, ToolCallId: "b", Text: "Error: invalid arguments"},
		{Role: llm.Assistant, ToolCalls: []*llm.ToolCall{{Id: "c", Name: "bash", Arguments: `{}`}}},
		{Role: llm.Tool, ToolCallId: "c"},
		{Role: llm.Assistant, Reasoning: "only thought"},
		{Role: llm.User, Text: "and now?"},
	},
	Tools: []*toolsv1.Tool{
		{Name: "bash", Description: "Runs a command.", InputSchema: `{"type":"object","properties":{"z":{},"a":{}}}`},
		{Name: "bare"},
	},
}

const messages = `[{"content":"Be brief.","role":"system"},` +
	`{"content":"list <files> & go","role":"user"},` +
	`{"content":"Sure.","tool_calls":[{"id":"a","function":{"arguments":"{\"command\":\"ls\"}","name":"bash"},"type":"function"},{"id":"b","function":{"arguments":"{\"comm","name":"bash"},"type":"function"}],"role":"assistant"},` +
	`{"content":"x.go","tool_call_id":"a","role":"tool"},` +
	`{"content":"Error: invalid arguments","tool_call_id":"b","role":"tool"},` +
	`{"tool_calls":[{"id":"c","function":{"arguments":"{}","name":"bash"},"type":"function"}],"role":"assistant"},` +
	`{"content":"","tool_call_id":"c","role":"tool"},` +
	`{"content":"","role":"assistant"},` +
	`{"content":"and now?","role":"user"}]`

func same(t *testing.T, what string, got any, want string) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(want), &v); err != nil {
		t.Fatal(err)
	}
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(v)
	if string(g) != string(w) {
		t.Errorf("%s\ngot  %s\nwant %s", what, g, w)
	}
}

func good() http.HandlerFunc { return stream(data(finish("stop"), "[DONE]")) }

func TestTheRequestOnTheWire(t *testing.T) {
	e := &endpoint{handler: good()}
	if o := e.generate(t, nil, conversation); o.err != nil {
		t.Fatal(o.err)
	}
	got := e.requests[0]
	if got.url != "/v1/chat/completions" || got.header.Get("Authorization") != "Bearer "+key {
		t.Errorf("%s with %q", got.url, got.header.Get("Authorization"))
	}
	same(t, "messages", got.body["messages"], messages)
	same(t, "tools", got.body["tools"], `[{"type":"function","function":{"name":"bash","description":"Runs a command.","parameters":{"type":"object","properties":{"z":{},"a":{}}}}},
		{"type":"function","function":{"name":"bare","parameters":{"type":"object","properties":{}}}}]`)
	delete(got.body, "messages")
	delete(got.body, "tools")
	same(t, "the rest", got.body, `{"model":"tiny","stream":true,"stream_options":{"include_usage":true}}`)
}

func TestOptionsOnTheWire(t *testing.T) {
	e := &endpoint{handler: good()}
	zero := 0.0
	o := e.generate(t, func(c *Config) {
		c.BaseURL = "http://model.test/api/?api-version=7"
		c.APIKey = " key-from-a-file\n"
		c.MaxTokens, c.Temperature = 100, &zero
		c.Headers = map[string]string{"X-Title": "dsh"}
		c.ExtraBody = map[string]any{"thinking": map[string]any{"type": "disabled"}, "stream_options": nil, "a.b": 1}
	}, &llm.Request{Model: "other"})
	if o.err != nil {
		t.Fatal(o.err)
	}
	got := e.requests[0]
	if got.url != "/api/chat/completions?api-version=7" || got.header.Get("Authorization") != "Bearer key-from-a-file" || got.header.Get("X-Title") != "dsh" {
		t.Errorf("%s with %v", got.url, got.header)
	}
	same(t, "body", got.body, `{"model":"other","messages":[],"stream":true,"stream_options":null,"max_tokens":100,"temperature":0,"thinking":{"type":"disabled"},"a.b":1}`)
}

func TestAStringIsWrittenAsJSON(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("\x00\x01\x1f\x7f\"\\\n\t\r\u2028é€😀a")))).Draw(r, "text")
		var got string
		if err := json.Unmarshal(appendString(nil, want), &got); err != nil || got != want {
			r.Fatalf("%q is written as %s: %q, %v", want, appendString(nil, want), got, err)
		}
	})
}

func TestTheLengthOfARequestIsSaid(t *testing.T) { // some servers take no chunked ones
	e := &endpoint{handler: good()}
	if o := e.generate(t, nil, conversation); o.err != nil {
		t.Fatal(o.err)
	}
	if got := e.requests[0]; got.length <= 0 || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("length %d, %v", got.length, got.header)
	}
}

func TestTheSchemaKeepsItsOrder(t *testing.T) {
	text, err := json.Marshal(functions(conversation.GetTools()))
	if err != nil || !strings.Contains(string(text), `"parameters":{"type":"object","properties":{"z":{},"a":{}}}`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestReasoningIsSentBackOnlyWhereItIsWanted(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name, baseURL string
		option        *bool
		want          bool
	}{
		{"OpenAI", "http://api.openai.com/v1", nil, false},
		{"DeepSeek", "http://api.deepseek.com", nil, true},
		{"a name that only ends so", "http://notdeepseek.com", nil, false},
		{"asked for", "http://model.test", &yes, true},
		{"forbidden", "http://api.deepseek.com", &no, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &endpoint{handler: good()}
			o := e.generate(t, func(c *Config) { c.BaseURL, c.SendReasoning = tt.baseURL, tt.option }, conversation)
			if o.err != nil {
				t.Fatal(o.err)
			}
			var got []any
			for _, m := range e.requests[0].body["messages"].([]any) {
				if m := m.(map[string]any); m["role"] == "assistant" {
					got = append(got, m["reasoning_content"])
				}
			}
			want := `[null,null,null]`
			if tt.want {
				want = `["think","",null]`
			}
			same(t, "reasoning", got, want)
		})
	}
}

func TestTheEnvironmentIsNotRead(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "http://elsewhere.test")
	t.Setenv("OPENAI_API_KEY", "env-secret")
	t.Setenv("OPENAI_ORG_ID", "env-org")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Env: yes")
	e := &endpoint{handler: good()}
	if o := e.generate(t, func(c *Config) { c.APIKey = "" }, nil); o.err != nil {
		t.Fatal(o.err)
	}
	for name, values := range e.requests[0].header {
		if name == "Authorization" || name == "X-Env" || strings.HasPrefix(name, "Openai-") {
			t.Errorf("sent %s: %s", name, values)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	ok := func() map[string]any { return map[string]any{"baseURL": "http://model.test/v1", "model": "tiny"} }
	for _, tt := range []struct {
		key   string
		value any
		want  string
	}{
		{"baseURL", "model.test/v1?key=" + key, `config: "baseURL" must be a URL that begins with http:// or https://`},
		{"baseURL", "ftp://model.test", `config: "baseURL" must be a URL that begins with http:// or https://`},
		{"baseURL", "", `config: "baseURL" must be a URL that begins with http:// or https://`},
		{"model", "", `config: "model" is empty: name the model as the endpoint spells it`},
		{"maxTokens", -1, `config: "maxTokens" must not be negative, got -1`},
		{"contextWindow", -1, `config: "contextWindow" must not be negative, got -1`},
		{"retries", -1, `config: "retries" must not be negative, got -1`},
		{"connectTimeoutMs", 0, `config: "connectTimeoutMs" must be positive, got 0`},
		{"stallTimeoutMs", 0, `config: "stallTimeoutMs" must be positive, got 0`},
	} {
		config := ok()
		config[tt.key] = tt.value
		_, err := plugintest.Activate(t, Plugin(), plugintest.Options{Config: config})
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s %v: %v, want %s", tt.key, tt.value, err, tt.want)
		}
	}
}

func TestPluginServesTheSeam(t *testing.T) {
	server := httptest.NewServer(stream(data(strings.Split(openaiTools, "\n")...)))
	defer server.Close()
	p := plugintest.Start(t, Plugin(), plugintest.Options{Config: map[string]any{"baseURL": server.URL, "model": "tiny"}})
	var got []string
	reason, err := llm.NewClient(p.Conn()).Generate(t.Context(), conversation, func(e *llm.Event) error {
		got = append(got, line(e))
		return nil
	})
	if err != nil || reason != llm.Stop || strings.Join(got, "\n") != "call call_a bash {\"command\":\"ls\"}\ncall call_b bash_output {}" {
		t.Errorf("got %q, %v, %v", got, reason, err)
	}
}

func TestARefusedConnectionReachesTheCallerInWords(t *testing.T) {
	server := httptest.NewServer(good())
	address := server.URL
	server.Close()
	p := plugintest.Start(t, Plugin(), plugintest.Options{Config: map[string]any{"baseURL": address, "model": "tiny", "retries": 0}})
	_, err := llm.NewClient(p.Conn()).Generate(t.Context(), conversation, func(*llm.Event) error { return nil })
	want := "cannot reach the model at " + address + `: connection refused: is the server running, and is "baseURL" right?`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
