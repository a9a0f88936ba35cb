package sdk

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// configSchema derives the JSON schema of a configuration struct. What has a default is optional and says its default.
func configSchema[C any](defaults C) (string, error) {
	schema, err := jsonschema.For[C](nil)
	if err != nil {
		return "", fmt.Errorf("derive the config schema of %T: %w", defaults, err)
	}
	if err := addDefaults(schema, reflect.ValueOf(defaults)); err != nil {
		return "", err
	}
	text, err := json.Marshal(schema)
	return string(text), err
}

func addDefaults(schema *jsonschema.Schema, defaults reflect.Value) error {
	if defaults.Kind() != reflect.Struct {
		return nil
	}
	for i := range defaults.NumField() {
		name, _, _ := strings.Cut(defaults.Type().Field(i).Tag.Get("json"), ",")
		property, value := schema.Properties[name], defaults.Field(i)
		if property == nil {
			continue
		}
		if value.Kind() == reflect.Struct {
			if err := addDefaults(property, value); err != nil {
				return err
			}
			if len(property.Required) == 0 {
				schema.Required = slices.DeleteFunc(schema.Required, func(r string) bool { return r == name })
			}
			continue
		}
		if value.IsZero() {
			continue
		}
		text, err := json.Marshal(value.Interface())
		if err != nil {
			return fmt.Errorf("default of config key %q: %w", name, err)
		}
		property.Default = text
		schema.Required = slices.DeleteFunc(schema.Required, func(r string) bool { return r == name })
	}
	return nil
}
