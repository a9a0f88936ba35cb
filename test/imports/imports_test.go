// Package imports holds which folder may import which: docs/design.md draws the arrows.
package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/dsh-go/dsh/"

// allowed says for each folder, by the longest prefix that fits, what of this module it may import: a package, or with /... all below
// it too. A room may always import what is in it.
var allowed = map[string][]string{
	"cmd/dsh":  {"host/...", "plugins/...", "sdk/...", "configs"},
	"configs":  {},
	"examples": {"sdk/..."},
	"host":     {"sdk/api/..."},
	"plugins":  {"sdk/..."},
	"sdk":      {"sdk", "sdk/api/..."},
	"sdk/api":  {},
	// The engine of a bash seam serves that seam and publishes events.
	"sdk/executor": {"sdk", "sdk/api/...", "sdk/bash", "sdk/events"},
	// The conformance suite of a seam calls it by its client.
	"sdk/plugintest/executortest": {"sdk", "sdk/api/...", "sdk/bash"},
	"test":                        {"host/...", "plugins/...", "sdk/...", "configs"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range list(t) {
		folder := strings.TrimPrefix(p.ImportPath, module)
		rule, ok := ruleOf(folder)
		if !ok {
			t.Errorf("%s: no rule says what it may import", folder)
			continue
		}
		for _, path := range p.Imports {
			target, ours := strings.CutPrefix(path, module)
			if ours && !within(target, own(folder)) && !mayImport(allowed[rule], target) {
				t.Errorf("%s imports %s, but may only import %v", folder, target, allowed[rule])
			}
		}
	}
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// ruleOf finds the rule with the longest prefix.
func ruleOf(folder string) (rule string, ok bool) {
	for prefix := range allowed {
		if within(folder, prefix) && len(prefix) >= len(rule) {
			rule, ok = prefix, true
		}
	}
	return rule, ok
}

// own is the room a package is in: plugins do not share one, nor do the packages of the SDK.
func own(folder string) string {
	parts := strings.Split(folder, "/")
	if (parts[0] == "plugins" || parts[0] == "sdk" || parts[0] == "test") && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func mayImport(targets []string, target string) bool {
	for _, t := range targets {
		below, all := strings.CutSuffix(t, "/...")
		if t == target || all && within(target, below) {
			return true
		}
	}
	return false
}

func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}
