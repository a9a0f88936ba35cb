package llmopenai

import (
	"context"
	"fmt"
	"maps"

	"github.com/dsh-go/dsh/sdk/llm"
)

// ModelConfig is one of several models to choose from. What it leaves out is as the row has it.
type ModelConfig struct {
	ID   string `json:"id" jsonschema:"the model's name, as the endpoint spells it"`
	Name string `json:"name,omitempty" jsonschema:"the name that people see; absent: the id"`

	MaxTokens     int64          `json:"maxTokens,omitempty" jsonschema:"in place of the row's maxTokens"`
	Temperature   *float64       `json:"temperature,omitempty" jsonschema:"in place of the row's temperature"`
	ContextWindow int64          `json:"contextWindow,omitempty" jsonschema:"in place of the row's contextWindow"`
	ExtraBody     map[string]any `json:"extraBody,omitempty" jsonschema:"in addition to the row's extraBody"`
	SendReasoning *bool          `json:"sendReasoning,omitempty" jsonschema:"in place of the row's sendReasoning"`
}

// complete makes the list of models whole: the default first, each with its name.
func (c *Config) complete() error {
	if c.Model == "" && len(c.Models) > 0 {
		c.Model = c.Models[0].ID
	}
	models := []ModelConfig{{ID: c.Model}}
	known := map[string]bool{}
	for i, m := range c.Models {
		switch {
		case m.ID == "":
			return fmt.Errorf(`config: "models[%d].id" is empty: name the model as the endpoint spells it`, i)
		case known[m.ID]:
			return fmt.Errorf(`config: "models" has %q twice`, m.ID)
		case m.MaxTokens < 0:
			return fmt.Errorf(`config: "models[%d].maxTokens" must not be negative, got %d`, i, m.MaxTokens)
		case m.ContextWindow < 0:
			return fmt.Errorf(`config: "models[%d].contextWindow" must not be negative, got %d`, i, m.ContextWindow)
		}
		known[m.ID] = true
		if m.ID == c.Model {
			models[0] = m
		} else {
			models = append(models, m)
		}
	}
	c.Models = models
	return nil
}

// Models returns the configured models, the default first.
func (m *model) Models(context.Context) ([]*llm.ModelInfo, error) {
	var models []*llm.ModelInfo
	for _, c := range m.config.Models {
		name := c.Name
		if name == "" {
			name = c.ID
		}
		models = append(models, &llm.ModelInfo{Id: c.ID, Name: name})
	}
	return models, nil
}

// settings are those of a model by its name; empty: the default.
func (m *model) settings(name string) ModelConfig {
	if name == "" {
		name = m.config.Model
	}
	s := ModelConfig{ID: name}
	for _, c := range m.config.Models {
		if c.ID == name {
			s = c
		}
	}
	if s.MaxTokens == 0 {
		s.MaxTokens = m.config.MaxTokens
	}
	if s.Temperature == nil {
		s.Temperature = m.config.Temperature
	}
	if s.ContextWindow == 0 {
		s.ContextWindow = m.config.ContextWindow
	}
	if s.SendReasoning == nil {
		s.SendReasoning = &m.sendReasoning
	}
	extra := maps.Clone(m.config.ExtraBody)
	if extra == nil {
		extra = map[string]any{}
	}
	maps.Copy(extra, s.ExtraBody)
	s.ExtraBody = extra
	return s
}
