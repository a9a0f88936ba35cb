// Package llmopenai connects dsh to a language model behind any endpoint that speaks OpenAI's chat completions: hosted ones and
// local servers. All it knows comes from its configuration; it reads no OPENAI_… variables.
//
// The API key, and every header's value, stays out of logs and errors.
package llmopenai

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/llm"
)

// Config is the configuration of a row.
type Config struct {
	BaseURL string `json:"baseURL" jsonschema:"what comes before /chat/completions in the endpoint's URL, e.g. https://api.deepseek.com or http://127.0.0.1:11434/v1"`
	APIKey  string `json:"apiKey,omitempty" jsonschema:"the key of the endpoint; empty for servers that want none"`
	Model   string `json:"model,omitempty" jsonschema:"the model's name, as the endpoint spells it; absent: the first of models"`
	// Models are the ones to choose from. Without any there is but Model.
	Models []ModelConfig `json:"models,omitempty" jsonschema:"the models that a session can choose from"`

	MaxTokens     int64    `json:"maxTokens,omitempty" jsonschema:"max_tokens of a request; 0: the endpoint's own limit"`
	Temperature   *float64 `json:"temperature,omitempty" jsonschema:"temperature of a request; absent: the endpoint's own"`
	ContextWindow int64    `json:"contextWindow,omitempty" jsonschema:"the size of the model's window in tokens, for displays; 0: unknown"`

	Headers   map[string]string `json:"headers,omitempty" jsonschema:"HTTP headers to add to a request"`
	ExtraBody map[string]any    `json:"extraBody,omitempty" jsonschema:"fields to add to a request's body, or to replace in it"`
	// SendReasoning: DeepSeek refuses a request without what its model thought before a tool call, others refuse one with it.
	SendReasoning *bool `json:"sendReasoning,omitempty" jsonschema:"send the model what it thought before its tool calls; absent: only to deepseek.com, which wants it"`

	Retries          int `json:"retries,omitempty" jsonschema:"how often a request is repeated that failed before the answer began: refused connections, 429 and 5xx; 0: never"`
	ConnectTimeoutMS int `json:"connectTimeoutMs,omitempty" jsonschema:"how long a connection may take"`
	StallTimeoutMS   int `json:"stallTimeoutMs,omitempty" jsonschema:"how long the endpoint may be silent before and during an answer"`
}

var defaults = Config{Retries: 2, ConnectTimeoutMS: 10_000, StallTimeoutMS: 180_000}

// Plugin is the plugin llm-openai.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{Name: "llm-openai", Version: "1", Provides: []sdk.Seam{llm.Seam}}, defaults,
		func(c *sdk.Context, config Config) error {
			m, err := newModel(config, c.Log())
			if err != nil {
				return err
			}
			c.Effect("connections", func(context.Context) error {
				m.transport.CloseIdleConnections()
				return nil
			})
			llm.Serve(c, m)
			return nil
		})
}

// model is the endpoint as a [llm.Model]. It is not changed once made.
type model struct {
	config        Config
	endpoint      string // the base URL as errors show it
	sendReasoning bool
	stall         time.Duration
	transport     *http.Transport
	log           hclog.Logger
}

func newModel(config Config, log hclog.Logger) (*model, error) {
	config.APIKey = strings.TrimSpace(config.APIKey) // a key that was read from a file ends in a newline
	base, err := url.Parse(config.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, errors.New(`config: "baseURL" must be a URL that begins with http:// or https://`)
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	switch {
	case config.Model == "":
		return nil, errors.New(`config: "model" is empty: name the model as the endpoint spells it`)
	case config.MaxTokens < 0:
		return nil, fmt.Errorf(`config: "maxTokens" must not be negative, got %d`, config.MaxTokens)
	case config.ContextWindow < 0:
		return nil, fmt.Errorf(`config: "contextWindow" must not be negative, got %d`, config.ContextWindow)
	case config.Retries < 0:
		return nil, fmt.Errorf(`config: "retries" must not be negative, got %d`, config.Retries)
	case config.ConnectTimeoutMS <= 0:
		return nil, fmt.Errorf(`config: "connectTimeoutMs" must be positive, got %d`, config.ConnectTimeoutMS)
	case config.StallTimeoutMS <= 0:
		return nil, fmt.Errorf(`config: "stallTimeoutMs" must be positive, got %d`, config.StallTimeoutMS)
	}
	m := &model{config: config, log: log, stall: time.Duration(config.StallTimeoutMS) * time.Millisecond}
	m.endpoint = strings.TrimSuffix((&url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path}).String(), "/")
	m.sendReasoning = strings.HasSuffix("."+base.Hostname(), ".deepseek.com")
	if config.SendReasoning != nil {
		m.sendReasoning = *config.SendReasoning
	}
	connect := time.Duration(config.ConnectTimeoutMS) * time.Millisecond
	m.transport = &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connect}).DialContext,
		TLSHandshakeTimeout: connect,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     90 * time.Second,
	}
	return m, nil
}

// Generate sends the request, again if it fails in a way that may pass before anything of an answer has come.
func (m *model) Generate(ctx context.Context, req *llm.Request, emit func(*llm.Event) error) (llm.Reason, error) {
	r, err := m.newRequest(req)
	if err != nil {
		return 0, err
	}
	for attempt := 0; ; attempt++ {
		reason, err := r.send(ctx, emit)
		if err == nil {
			return reason, nil
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		f, ok := errors.AsType[*failure](err)
		if !ok {
			return 0, err
		}
		wait, again := f.retryIn(attempt)
		if !again || attempt >= m.config.Retries {
			if attempt > 0 {
				f.text += fmt.Sprintf(" (tried %d times)", attempt+1)
			}
			return 0, f
		}
		m.log.Warn("the model's endpoint failed, trying again", "error", f.text, "in", wait.Round(time.Millisecond).String())
		if err := emit(llm.RetryEvent(f.text, wait)); err != nil {
			return 0, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
	}
}
