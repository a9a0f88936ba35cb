package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md anew")

// TestTheDocumentedConfigurationIsThatOfThePlugins compares docs/configuration.md, from its heading on, with the schemas of the plugins.
func TestTheDocumentedConfigurationIsThatOfThePlugins(t *testing.T) {
	const page, heading = "../../docs/configuration.md", "## The built-in plugins\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), heading)
	if !found {
		t.Fatalf("%s lacks %q", page, heading)
	}
	var tables strings.Builder
	for _, name := range builtinNames() {
		answer, err := sdk.NewInstance(builtins[name](), nil, 0).Describe(t.Context(), &pluginv1.DescribeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var schema jsonschema.Schema
		if err := json.Unmarshal([]byte(answer.GetManifest().GetConfigSchema()), &schema); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&tables, "\n### %s\n\n", name)
		if len(schema.Properties) == 0 {
			tables.WriteString("It takes no configuration.\n")
			continue
		}
		tables.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
		writeKeys(&tables, "", &schema)
	}
	want := before + heading + tables.String()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s does not show the configuration that the plugins take; write it anew with: go test ./cmd/dsh -run Documented -update", page)
	}
}

func writeKeys(w *strings.Builder, prefix string, s *jsonschema.Schema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		fallback := "required"
		switch {
		case p.Default != nil && !strings.Contains(string(p.Default), `\n`):
			fallback = "`" + string(p.Default) + "`"
		case p.Default != nil:
			fallback = "a text"
		case !slices.Contains(s.Required, name):
			fallback = ""
		}
		fmt.Fprintf(w, "| `%s%s` | %s | %s | %s |\n", prefix, name, typeName(p), fallback, strings.ReplaceAll(p.Description, "|", `\|`))
		if p.Type == "object" {
			writeKeys(w, prefix+name+".", p)
		}
		if p.Items != nil {
			writeKeys(w, prefix+name+"[].", p.Items)
		}
	}
}

func typeName(s *jsonschema.Schema) string {
	if s.Type != "" {
		return s.Type
	}
	for _, typ := range s.Types {
		if typ != "null" {
			return typ
		}
	}
	return "any"
}
