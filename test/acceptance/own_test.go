//go:build acceptance

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runs are the ways in which an editor shows terminals.
var runs = []struct {
	name    string
	options []string
}{
	{"with terminals", nil},
	{"without terminals", []string{"--no-terminal-output"}},
}

// TestOwnScripts runs the scripts about what only dsh has: approval, modes, commands.
func TestOwnScripts(t *testing.T) {
	scripts, err := filepath.Glob("dsh/*.json")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("find scripts: %d, %v", len(scripts), err)
	}
	for _, script := range scripts {
		for _, run := range runs {
			t.Run(strings.TrimSuffix(filepath.Base(script), ".json")+" "+run.name, func(t *testing.T) {
				strict(t, "dsh/dsh.yaml", script, run.options...)
			})
		}
	}
}

// TestTwentySessions has twenty turns at once on one connection.
func TestTwentySessions(t *testing.T) {
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			raw, err := json.Marshal(twentySessions(run.options == nil))
			if err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(t.TempDir(), "script.json")
			if err := os.WriteFile(script, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			strict(t, config, script, run.options...)
		})
	}
}

type step map[string]any

func twentySessions(terminals bool) (steps []step) {
	const sessions, rounds = 20, 3
	for i := range sessions {
		dir, name := fmt.Sprintf("dir%d", i), fmt.Sprintf("s%d", i)
		steps = append(steps, step{"op": "tempdir", "as": dir}, step{"op": "new", "as": name, "cwd": "${" + dir + "}"})
	}
	for round := range rounds {
		for i := range sessions {
			text := fmt.Sprintf("pwd; sleep 0.%d; echo %d-%d-$((%d + 1))", 9-i%10, i, round, i)
			steps = append(steps, step{"op": "prompt", "session": fmt.Sprintf("s%d", i), "text": text, "async": true})
		}
		cancelled := -1
		if round == rounds-1 {
			cancelled = 0
			steps = append(steps, step{"op": "cancel", "session": "s0"})
		}
		steps = append(steps, step{"op": "await"})
		for i := range sessions {
			expect := step{"op": "expect", "session": fmt.Sprintf("s%d", i), "stop": "end_turn"}
			printed := step{"contains": []string{fmt.Sprintf("${dir%d}", i), fmt.Sprintf("%d-%d-%d", i, round, i+1)}}
			switch {
			case i == cancelled:
				expect["stop"] = "cancelled"
			case terminals:
				expect["terminal"] = step{"output": printed}
			default:
				expect["tool"] = step{"content": printed}
			}
			steps = append(steps, expect)
		}
	}
	return steps
}

// strict runs a script of the strict client against dsh.
func strict(t *testing.T, config, script string, options ...string) {
	t.Helper()
	home := newHome(t)
	transcript := filepath.Join(home.dir, "transcript.ndjson")
	argv := append([]string{"node", "strict-client.mjs", "--script", script, "--transcript", transcript}, options...)
	p := execute(t, home, 2*time.Minute, append(argv, "--", dsh, "run", "-c", config)...)
	if p.err != nil {
		frames, _ := os.ReadFile(transcript) // without it the verdict says enough
		t.Errorf("%v\n%s\n--- end of the log\n%s\n--- last frames\n%s", p.err, p.stdout, tail(p.stderr, 30), tail(frames, 20))
	}
	home.expectNobody(t)
}
