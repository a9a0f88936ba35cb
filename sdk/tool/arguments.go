package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// argumentSchema derives the schema of a struct of arguments. Null is nowhere a value, and unknown properties are allowed:
// the check drops them.
func argumentSchema(t reflect.Type) (*jsonschema.Schema, error) {
	schema, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, fmt.Errorf("derive the schema of the arguments: %w", err)
	}
	if schema.Type != "object" {
		return nil, fmt.Errorf("the arguments must be a struct, not %s", t)
	}
	simplify(schema)
	return schema, nil
}

func simplify(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 {
		s.Types = slices.Delete(s.Types, i, i+1)
	}
	if len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil { // a struct, not a map
		s.AdditionalProperties = nil
		if s.Properties == nil {
			s.Properties = map[string]*jsonschema.Schema{}
		}
	}
	for _, p := range s.Properties {
		simplify(p)
	}
	simplify(s.Items)
	simplify(s.AdditionalProperties)
}

// check returns the arguments as a JSON object that fits the tool's schema and has nothing else, or says everything that is
// wrong with them, in the order of the properties.
func (t *Tool) check(arguments string) ([]byte, error) {
	if strings.TrimSpace(arguments) == "" {
		arguments = "{}"
	}
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber()
	var value any
	err := d.Decode(&value)
	object, ok := value.(map[string]any)
	if err != nil || !ok || !json.Valid([]byte(arguments)) {
		return nil, invalid(`"arguments" must be an object`)
	}
	var c checker
	object = c.object(t.schema, "", object)
	if len(c.violations) > 0 {
		return nil, invalid(strings.Join(c.violations, "; "))
	}
	return json.Marshal(object)
}

func invalid(violations string) error { return InvalidArguments("invalid arguments: %s", violations) }

// decode fills a struct of arguments from what check returned.
func decode(arguments []byte, into any) error {
	err := json.Unmarshal(arguments, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) { // what Go cannot hold although the schema allows it: a number
		return invalid(fmt.Sprintf("%q is out of range", wrong.Field))
	}
	if err != nil {
		return invalid(err.Error())
	}
	return nil
}

// checker collects what is wrong with a value. Its methods return the value without what the schema does not know.
type checker struct{ violations []string }

func (c *checker) addf(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

func (c *checker) object(s *jsonschema.Schema, path string, value map[string]any) map[string]any {
	known := map[string]any{}
	if s.Properties == nil { // a map
		for _, name := range slices.Sorted(maps.Keys(value)) {
			known[name] = c.value(s.AdditionalProperties, join(path, name), value[name])
		}
		return known
	}
	for _, name := range s.PropertyOrder {
		v, present := value[name]
		switch {
		case present:
			known[name] = c.value(s.Properties[name], join(path, name), v)
		case slices.Contains(s.Required, name):
			c.addf("missing required property %q", join(path, name))
		}
	}
	return known
}

func (c *checker) value(s *jsonschema.Schema, path string, value any) any {
	if s == nil {
		return value
	}
	switch s.Type {
	case "object":
		if v, ok := value.(map[string]any); ok {
			return c.object(s, path, v)
		}
		c.addf("%q must be an object", path)
	case "array":
		if v, ok := value.([]any); ok {
			for i := range v {
				v[i] = c.value(s.Items, fmt.Sprintf("%s[%d]", path, i), v[i])
			}
			return v
		}
		c.addf("%q must be an array", path)
	case "string":
		if _, ok := value.(string); !ok {
			c.addf("%q must be a string", path)
		}
	case "boolean":
		if _, ok := value.(bool); !ok {
			c.addf("%q must be a boolean", path)
		}
	case "number":
		if _, ok := value.(json.Number); !ok {
			c.addf("%q must be a number", path)
		}
	case "integer":
		return c.integer(s, path, value)
	}
	return value
}

// integer accepts every way to write one (5, 5.0, 5e0) and returns the one that Go reads.
func (c *checker) integer(s *jsonschema.Schema, path string, value any) any {
	number, ok := value.(json.Number)
	if !ok {
		c.addf("%q must be an integer", path)
		return value
	}
	f, err := number.Float64()
	if err != nil {
		c.addf("%q is out of range", path)
		return value
	}
	exact, ok := new(big.Rat).SetString(number.String())
	if !ok || !exact.IsInt() {
		c.addf("%q must be an integer", path)
		return value
	}
	switch {
	case s.Minimum != nil && f < *s.Minimum:
		c.addf("%q must be at least %s", path, formatNumber(*s.Minimum))
	case s.Maximum != nil && f > *s.Maximum:
		c.addf("%q must be at most %s", path, formatNumber(*s.Maximum))
	}
	return json.Number(exact.Num().String())
}

func formatNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
