// Package permissions is a hook that allows, denies or asks about tool calls by rules.
package permissions

import (
	"context"
	"fmt"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/hook"
)

// Config is the row's configuration.
type Config struct {
	// Rules are tried in order; the first one that fits decides.
	Rules []Rule `json:"rules,omitempty" jsonschema:"tried in order; the first that fits a call decides"`
	// Mode is the one that sessions start in.
	Mode Mode `json:"mode" jsonschema:"the mode that sessions start in: ask, auto or read-only"`
}

// Rule is what happens to the calls that fit it.
type Rule struct {
	Tool    string `json:"tool,omitempty" jsonschema:"a pattern for the tool's name, * for any characters; without it any tool"`
	Command string `json:"command,omitempty" jsonschema:"a pattern for the whole command of a shell tool, * for any characters; without it any call"`
	Action  Action `json:"action" jsonschema:"allow, ask or deny"`
	Reason  string `json:"reason,omitempty" jsonschema:"for the person who is asked, or for the model that is refused"`
}

// Action is what a rule says.
type Action string

// The actions.
const (
	Allow Action = "allow"
	Ask   Action = "ask"
	Deny  Action = "deny"
)

// Mode says what happens where no rule decides, and how strict rules are. A person can choose one for each session.
type Mode string

// The modes.
const (
	ModeAsk      Mode = "ask"       // what no rule decides is asked
	ModeAuto     Mode = "auto"      // nothing is asked: only what a rule denies is refused
	ModeReadOnly Mode = "read-only" // only what a rule allows runs, without asking
)

var modes = []*toolsv1.Mode{
	{Id: string(ModeAsk), Name: "Ask", Description: "Ask before what no rule allows"},
	{Id: string(ModeAuto), Name: "Auto", Description: "Run everything that no rule denies, without asking"},
	{Id: string(ModeReadOnly), Name: "Read only", Description: "Run only what the rules allow, without asking"},
}

// Plugin is the plugin with the defaults of its configuration.
func Plugin() *sdk.Plugin {
	m := sdk.Manifest{Name: "permissions", Version: "1", Provides: []sdk.Seam{hook.Seam}}
	return sdk.Define(m, Config{Mode: ModeAsk}, activate)
}

func activate(c *sdk.Context, config Config) error {
	p, err := compile(config)
	if err != nil {
		return err
	}
	hook.Serve(c, hook.Hook{Before: p.before, Modes: p.offered()})
	return nil
}

// offered are the modes, the configured one first.
func (p *policy) offered() []*toolsv1.Mode {
	list := make([]*toolsv1.Mode, 0, len(modes))
	for _, m := range modes {
		if m.GetId() == string(p.mode) {
			list = append(list, m)
		}
	}
	for _, m := range modes {
		if m.GetId() != string(p.mode) {
			list = append(list, m)
		}
	}
	return list
}

// before turns the policy's verdict into a hook's decision.
func (p *policy) before(_ context.Context, call *toolsv1.Call) (hook.Decision, error) {
	mode := p.mode
	if call.GetMode() != "" {
		mode = Mode(call.GetMode())
	}
	v := p.judge(call, mode)
	switch v.action {
	case Allow:
		return hook.Allow(), nil
	case Ask:
		return hook.Ask(v.reason, v.key), nil
	case Deny:
		return hook.Deny(v.reason), nil
	default:
		return hook.Decision{}, fmt.Errorf("no verdict on a call of %s in mode %q", call.GetName(), mode)
	}
}
