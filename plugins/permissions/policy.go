package permissions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// policy is a compiled configuration. It does not change.
type policy struct {
	rules []rule
	mode  Mode
}

type rule struct {
	Rule
	number        int // from 1, for messages
	tool, command *regexp.Regexp
}

// verdict is what becomes of a call.
type verdict struct {
	action Action
	reason string
	key    string // of an ask: what an answer for the whole session covers
}

func compile(config Config) (*policy, error) {
	p := &policy{mode: config.Mode}
	switch config.Mode {
	case ModeAsk, ModeAuto, ModeReadOnly:
	default:
		return nil, fmt.Errorf("mode %q: use ask, auto or read-only", config.Mode)
	}
	for i, r := range config.Rules {
		switch r.Action {
		case Allow, Ask, Deny:
		default:
			return nil, fmt.Errorf("rules[%d]: action %q: use allow, ask or deny", i, r.Action)
		}
		p.rules = append(p.rules, rule{Rule: r, number: i + 1, tool: pattern(r.Tool), command: pattern(r.Command)})
	}
	return p, nil
}

// pattern compiles a text in which * stands for any characters, line breaks included; nil for none.
func pattern(s string) *regexp.Regexp {
	if s == "" {
		return nil
	}
	parts := strings.Split(s, "*")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile(`(?s)\A` + strings.Join(parts, ".*") + `\z`)
}

// judge decides on a call in a mode. A mode that is not known asks.
func (p *policy) judge(call *toolsv1.Call, mode Mode) verdict {
	for _, r := range p.rules {
		if !r.fits(call) {
			continue
		}
		switch {
		case r.Action == Deny:
			return verdict{action: Deny, reason: r.reason("a rule denies this call")}
		case r.Action == Allow:
			return verdict{action: Allow}
		case mode == ModeAuto:
			return verdict{action: Allow}
		case mode == ModeReadOnly:
			return verdict{action: Deny, reason: r.reason("this call needs approval, and the session is in read-only mode")}
		default:
			return verdict{action: Ask, reason: r.Reason, key: fmt.Sprintf("%s rule %d", call.GetName(), r.number)}
		}
	}
	switch mode {
	case ModeAuto:
		return verdict{action: Allow}
	case ModeReadOnly:
		return verdict{action: Deny, reason: "no rule allows this call, and the session is in read-only mode"}
	default:
		return verdict{action: Ask, key: call.GetName()}
	}
}

func (r *rule) reason(otherwise string) string {
	if r.Reason != "" {
		return r.Reason
	}
	return otherwise
}

// fits is true when the rule's patterns fit the call. A rule that allows fits a command only if the pattern speaks of all of it: a
// command that goes on with another one (; | & and the like) is more than what was allowed.
func (r *rule) fits(call *toolsv1.Call) bool {
	if r.tool != nil && !r.tool.MatchString(call.GetName()) {
		return false
	}
	if r.command == nil {
		return true
	}
	command, ok := commandOf(call)
	if !ok || !r.command.MatchString(command) {
		return false
	}
	return r.Action != Allow || !compound(command) || compound(r.Command)
}

// commandOf is the command of a shell tool's call: its string argument "command". Arguments in which that is not plain, as by a key
// that comes twice, have none.
func commandOf(call *toolsv1.Call) (string, bool) {
	d := json.NewDecoder(bytes.NewReader([]byte(call.GetArguments())))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	var command string
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return "", false
		}
		if key != "command" {
			continue
		}
		if found || json.Unmarshal(value, &command) != nil {
			return "", false
		}
		found = true
	}
	return command, found
}

// compound is true for a command that may run more than one program: what a pattern's * would let in unseen.
func compound(command string) bool {
	return strings.ContainsAny(command, ";|&\n`<>") || strings.Contains(command, "$(")
}
