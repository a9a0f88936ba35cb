// Command deny-commands is a plugin for dsh: a hook that denies shell commands by pattern.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/hook"
)

func main() { sdk.Serve(Plugin()) }

type config struct {
	Deny []rule `json:"deny" jsonschema:"What is denied; the first rule that fits decides."`
}

type rule struct {
	Pattern string `json:"pattern" jsonschema:"A regular expression (RE2) that is looked for in the command."`
	Reason  string `json:"reason" jsonschema:"What the model reads."`
}

// Plugin is the plugin with the defaults of its configuration.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{Name: "deny-commands", Version: "0.1.0", Provides: []sdk.Seam{hook.Seam}}, config{}, activate)
}

func activate(c *sdk.Context, cfg config) error {
	patterns := make([]*regexp.Regexp, len(cfg.Deny))
	for i, r := range cfg.Deny {
		var err error
		if patterns[i], err = regexp.Compile(r.Pattern); err != nil {
			return fmt.Errorf("deny[%d]: %w", i, err)
		}
	}
	hook.Serve(c, hook.Hook{Before: func(_ context.Context, call *toolsv1.Call) (hook.Decision, error) {
		var args struct {
			Command string `json:"command"`
		}
		if call.GetName() != "bash" || json.Unmarshal([]byte(call.GetArguments()), &args) != nil {
			return hook.Allow(), nil // arguments that are no JSON object never run
		}
		for i, p := range patterns {
			if p.MatchString(args.Command) {
				return hook.Deny(cfg.Deny[i].Reason), nil
			}
		}
		return hook.Allow(), nil
	}})
	return nil
}
