package llmopenai

import (
	"net/http"
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk/llm"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestTheModelsAreListedTheDefaultFirst(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		models      []map[string]any
		want        string
	}{
		{"one", "tiny", nil, "tiny=tiny"},
		{"the first is the default", "", []map[string]any{{"id": "a", "name": "Model A"}, {"id": "b"}}, "a=Model A b=b"},
		{"another is the default", "b", []map[string]any{{"id": "a"}, {"id": "b", "name": "B"}, {"id": "c"}}, "b=B a=a c=c"},
		{"the default is not among them", "tiny", []map[string]any{{"id": "a"}}, "tiny=tiny a=a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := map[string]any{"baseURL": "http://model.test/v1", "models": tt.models}
			if tt.model != "" {
				config["model"] = tt.model
			}
			models, err := llm.NewClient(plugintest.Start(t, Plugin(), plugintest.Options{Config: config}).Conn()).Models(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range models {
				got = append(got, m.GetId()+"="+m.GetName())
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %s", got, tt.want)
			}
		})
	}
}

func TestAModelHasItsOwnSettings(t *testing.T) {
	hot, cold, yes := 1.5, 0.0, true
	change := func(c *Config) {
		c.MaxTokens, c.Temperature, c.ContextWindow = 100, &hot, 1000
		c.ExtraBody = map[string]any{"x": 1, "y": 1}
		c.Models = []ModelConfig{
			{ID: "tiny"},
			{ID: "big", MaxTokens: 200, Temperature: &cold, ContextWindow: 2000, ExtraBody: map[string]any{"y": 2}, SendReasoning: &yes},
		}
	}
	for _, tt := range []struct{ model, body, window string }{
		{"", `{"model":"tiny","max_tokens":100,"temperature":1.5,"x":1,"y":1}`, "1000"},
		{"tiny", `{"model":"tiny","max_tokens":100,"temperature":1.5,"x":1,"y":1}`, "1000"},
		{"big", `{"model":"big","max_tokens":200,"temperature":0,"x":1,"y":2}`, "2000"},
		{"another", `{"model":"another","max_tokens":100,"temperature":1.5,"x":1,"y":1}`, "1000"},
	} {
		t.Run(tt.model, func(t *testing.T) {
			e := &endpoint{handler: stream(data(`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, "[DONE]"))}
			o := e.generate(t, change, &llm.Request{Model: tt.model, Messages: conversation.GetMessages()})
			if want := "usage 1+2 of " + tt.window; o.err != nil || o.events[len(o.events)-1] != want {
				t.Errorf("%q, %v, want %s", o.events, o.err, want)
			}
			body := e.requests[0].body
			reasoning := body["messages"].([]any)[2].(map[string]any)["reasoning_content"]
			if (reasoning != nil) != (tt.model == "big") {
				t.Errorf("reasoning %v", reasoning)
			}
			for _, name := range []string{"messages", "stream", "stream_options"} {
				delete(body, name)
			}
			same(t, "body", body, tt.body)
		})
	}
}

func TestWhatIsNoListOfModels(t *testing.T) {
	for _, tt := range []struct {
		models []map[string]any
		want   string
	}{
		{[]map[string]any{{"id": "a"}, {"id": ""}}, `config: "models[1].id" is empty: name the model as the endpoint spells it`},
		{[]map[string]any{{"id": "a"}, {"id": "a"}}, `config: "models" has "a" twice`},
		{[]map[string]any{{"id": "a", "maxTokens": -1}}, `config: "models[0].maxTokens" must not be negative, got -1`},
		{[]map[string]any{{"id": "a", "contextWindow": -1}}, `config: "models[0].contextWindow" must not be negative, got -1`},
	} {
		_, err := plugintest.Activate(t, Plugin(), plugintest.Options{Config: map[string]any{"baseURL": "http://model.test", "models": tt.models}})
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.models, err, tt.want)
		}
	}
}

func TestTheProxyOfTheEnvironmentIsUsed(t *testing.T) {
	config := defaults
	config.BaseURL, config.Model = "http://model.test", "tiny"
	m, err := newModel(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{"http://model.test/v1": "http://proxy.test:3128", "http://inside.test/v1": "<nil>"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := m.transport.Proxy(req)
		got := "<nil>"
		if proxy != nil {
			got = proxy.String()
		}
		if err != nil || got != want {
			t.Errorf("%s: proxy %s, %v, want %s", url, got, err, want)
		}
	}
}
