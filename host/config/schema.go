package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Validate checks the row's config against a plugin's JSON schema. The error joins all that was found, each at its place.
func (r *Row) Validate(schema string) error {
	if schema == "" {
		schema = `{"type":"object","additionalProperties":false}`
	}
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		return fmt.Errorf("the plugin's config schema: %w", err)
	}
	config := r.config
	if config == nil {
		config = &value{where: r.Where, kind: mapping}
	}
	c := checker{row: r.ID}
	c.check(config, &s, "config")
	return errors.Join(c.errs...)
}

type checker struct {
	row  string
	errs []error
}

func (c *checker) failf(where Position, format string, args ...any) {
	c.errs = append(c.errs, &Error{where, fmt.Sprintf("row %q: ", c.row) + fmt.Sprintf(format, args...)})
}

// check walks down objects, so that each fault is reported at its own line, and leaves the rest to the schema library.
func (c *checker) check(v *value, s *jsonschema.Schema, path string) {
	if v.kind == mapping && (s.Properties != nil || s.AdditionalProperties != nil) {
		c.object(v, s, path)
		return
	}
	if v.kind == sequence && s.Items != nil {
		for i, item := range v.items {
			c.check(item, s.Items, fmt.Sprintf("%s[%d]", path, i))
		}
		return
	}
	if v.varies && !allows(s, "string") {
		if scalar, ok := parseScalar(v.text); ok {
			v.scalar = scalar
			v.kind = number
			if _, isBool := scalar.(bool); isBool {
				v.kind = boolean
			}
		}
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		c.failf(v.where, "%s: the plugin's schema: %v", path, err)
		return
	}
	plain := v.plain()
	if data, err := json.Marshal(plain); err == nil { // the library knows JSON's types only
		_ = json.Unmarshal(data, &plain)
	}
	if err := resolved.Validate(plain); err != nil {
		c.failf(v.where, "%s %s", path, expectation(v, s, err))
	}
}

func (c *checker) object(v *value, s *jsonschema.Schema, path string) {
	known := slices.Sorted(maps.Keys(s.Properties))
	seen := map[string]bool{}
	for _, e := range v.entries {
		property := s.Properties[e.key]
		if property == nil {
			property = s.AdditionalProperties
			if property == nil || property.Not != nil {
				c.failf(e.where, "unknown key %q in %s%s", e.key, path, Suggest(e.key, known))
				continue
			}
		}
		seen[e.key] = true
		c.check(e.value, property, path+"."+e.key)
	}
	for _, name := range s.Required {
		if !seen[name] {
			c.failf(v.where, "%s needs the key %q", path, name)
		}
	}
}

// expectation says what a value should have been.
func expectation(v *value, s *jsonschema.Schema, err error) string {
	if s.Type != "" && !matches(v, s.Type) {
		return fmt.Sprintf("must be %s, not %s", article(s.Type), v.kind)
	}
	return fmt.Sprintf("does not fit: %v", errors.Unwrap(err))
}

func matches(v *value, typ string) bool {
	switch typ {
	case "string":
		return v.kind == text
	case "number":
		return v.kind == number
	case "integer":
		_, fraction := v.scalar.(float64)
		return v.kind == number && !fraction
	case "boolean":
		return v.kind == boolean
	case "array":
		return v.kind == sequence
	default:
		return v.kind == mapping
	}
}

func article(typ string) string {
	switch typ {
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "integer":
		return "an integer"
	default:
		return "a " + typ
	}
}

func allows(s *jsonschema.Schema, typ string) bool {
	return s.Type == typ || slices.Contains(s.Types, typ) || s.Type == "" && len(s.Types) == 0
}
