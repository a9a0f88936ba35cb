package host

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// manifest makes a manifest from words: "+seam" provides, "*seam" contributes, "seam" needs, "?seam" injects optionally.
func manifest(words ...string) *pluginv1.Manifest {
	m := &pluginv1.Manifest{Name: "test"}
	for _, w := range words {
		switch w[0] {
		case '+':
			m.Provides = append(m.Provides, &pluginv1.Provide{Seam: w[1:], Service: "test." + w[1:]})
		case '*':
			m.Provides = append(m.Provides, &pluginv1.Provide{Seam: w[1:], Service: "test." + w[1:], Contribution: true})
		case '?':
			m.Injects = append(m.Injects, &pluginv1.Inject{Seam: w[1:], Service: "test." + w[1:], Optional: true})
		default:
			m.Injects = append(m.Injects, &pluginv1.Inject{Seam: w, Service: "test." + w})
		}
	}
	return m
}

func state(id string, p phase, words ...string) rowState {
	return rowState{id: id, phase: p, manifest: manifest(words...)}
}

func returning(id string, p phase, words ...string) rowState {
	r := state(id, p, words...)
	r.returning = true
	return r
}

var testSeams = hostSeams{"tools": "test.tools"}

func TestPlan(t *testing.T) {
	otherVersion := manifest("+bash")
	otherVersion.Provides[0].Service = "test.v2.bash"
	for _, test := range []struct {
		name     string
		rows     []rowState
		stopping bool
		want     decision
	}{
		{
			"a row that needs nothing is activated",
			[]rowState{state("bash", pending, "+bash")}, false,
			decision{activate: []string{"bash"}},
		},
		{
			"nothing is activated before all rows are described",
			[]rowState{state("bash", pending, "+bash"), state("slow", starting)}, false,
			decision{},
		},
		{
			"a row waits for its provider to be active",
			[]rowState{state("tool", pending, "bash"), state("bash", activating, "+bash")}, false,
			decision{waiting: map[string]string{"tool": `needs seam "bash" from row "bash", which is activating`}},
		},
		{
			"a row is activated when all its providers are active",
			[]rowState{state("tool", pending, "bash", "tools"), state("bash", active, "+bash")}, false,
			decision{activate: []string{"tool"}},
		},
		{
			"a missing provider is named",
			[]rowState{state("tool", pending, "bash")}, false,
			decision{waiting: map[string]string{"tool": `needs seam "bash", which no row provides`}},
		},
		{
			"a failed provider is named",
			[]rowState{state("tool", pending, "bash"), state("bash", failed, "+bash")}, false,
			decision{waiting: map[string]string{"tool": `needs seam "bash"; row "bash", which provides it, failed`}},
		},
		{
			"an optional injection never delays activation",
			[]rowState{state("tool", pending, "?bash")}, false,
			decision{activate: []string{"tool"}},
		},
		{
			"the later of two providers fails, the first is untouched",
			[]rowState{state("bash", active, "+bash"), state("other", pending, "+bash")}, false,
			decision{fail: map[string]string{"other": `seam "bash" is already provided by row "bash"`}},
		},
		{
			"a seam of the host cannot be provided",
			[]rowState{state("mine", pending, "+tools")}, false,
			decision{fail: map[string]string{"mine": `seam "tools" is provided by the host`}},
		},
		{
			"many rows may contribute to one seam",
			[]rowState{state("a", pending, "*tool-provider"), state("b", pending, "*tool-provider")}, false,
			decision{activate: []string{"a", "b"}},
		},
		{
			"a provider of another version does not do",
			[]rowState{state("tool", pending, "bash"), {id: "bash", phase: active, manifest: otherVersion}}, false,
			decision{waiting: map[string]string{"tool": `needs seam "bash" as test.bash, which row "bash" serves in another version`}},
		},
		{
			"rows in a cycle fail, others do not",
			[]rowState{state("a", pending, "+x", "y"), state("b", pending, "+y", "x"), state("c", pending)}, false,
			decision{activate: []string{"c"}, fail: map[string]string{
				"a": "rows need each other in a cycle: a -> b -> a", "b": "rows need each other in a cycle: a -> b -> a",
			}},
		},
		{
			"when a provider failed, the last of those who need it is deactivated first",
			[]rowState{state("bash", failed, "+bash"), state("agent", active, "bash", "+agents"), state("acp", active, "agents")}, false,
			decision{deactivate: []string{"acp"}},
		},
		{
			"while a crashed provider returns, those who need it stay active",
			[]rowState{returning("bash", starting, "+bash"), state("agent", active, "bash", "+agents"), state("acp", active, "agents")}, false,
			decision{},
		},
		{
			"a row that has not been active yet waits for a provider that returns",
			[]rowState{returning("bash", restarting, "+bash"), state("tool", pending, "bash")}, false,
			decision{waiting: map[string]string{"tool": `needs seam "bash" from row "bash", which is restarting`}},
		},
		{
			"a returning row does not hold up others that can be activated",
			[]rowState{returning("bash", starting, "+bash"), state("llm", pending, "+llm")}, false,
			decision{activate: []string{"llm"}},
		},
		{
			"a returning row whose own provider failed takes those who need it along",
			[]rowState{state("llm", failed, "+llm"), returning("agent", pending, "llm", "+agents"), state("acp", active, "agents")}, false,
			decision{deactivate: []string{"acp"}},
		},
		{
			"stopping begins with the rows that nobody needs",
			[]rowState{state("bash", active, "+bash"), state("tool", active, "bash"), state("waits", pending, "x")}, true,
			decision{deactivate: []string{"tool"}, stop: []string{"waits"}},
		},
		{
			"stopping takes a provider when its dependents are gone",
			[]rowState{state("bash", active, "+bash"), state("tool", stopped, "bash")}, true,
			decision{deactivate: []string{"bash"}},
		},
		{
			"tools stop after those who use them",
			[]rowState{state("tool", active, "*tool-provider"), state("agent", active, "tools")}, true,
			decision{deactivate: []string{"agent"}},
		},
		{
			"a tool that needs the agent which needs its tools stops all the same",
			[]rowState{state("tool", active, "*tool-provider", "agents"), state("agent", active, "+agents", "tools")}, true,
			decision{deactivate: []string{"agent"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := plan(test.rows, testSeams, test.stopping)
			if !slices.Equal(got.activate, test.want.activate) || !slices.Equal(got.stop, test.want.stop) ||
				!maps.Equal(got.fail, test.want.fail) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if test.want.waiting != nil && !maps.Equal(got.waiting, test.want.waiting) {
				t.Errorf("waiting for %v, want %v", got.waiting, test.want.waiting)
			}
			if !slices.Equal(got.deactivate, test.want.deactivate) {
				t.Errorf("deactivates %v, want %v", got.deactivate, test.want.deactivate)
			}
		})
	}
}

// drawRows makes up to eight rows that provide and need some of four seams.
func drawRows(t *rapid.T) []rowState {
	var rows []rowState
	for i := range rapid.IntRange(1, 8).Draw(t, "rows") {
		var words []string
		for seam := range 4 {
			switch rapid.IntRange(0, 7).Draw(t, "use") {
			case 0:
				words = append(words, fmt.Sprintf("+s%d", seam))
			case 1, 2, 3:
				words = append(words, fmt.Sprintf("s%d", seam))
			case 4:
				words = append(words, fmt.Sprintf("?s%d", seam))
			}
		}
		rows = append(rows, state(fmt.Sprintf("r%d", i), pending, words...))
	}
	return rows
}

// play carries out decisions as if everything succeeded, one random action at a time, until nothing is left to do. each sees the rows
// before every action.
func play(t *rapid.T, rows []rowState, stopping bool, each func(rows []rowState, action string, id string)) {
	for step := 0; ; step++ {
		if step > 200 {
			t.Fatal("the plan never comes to rest")
		}
		d := plan(rows, testSeams, stopping)
		again := plan(rows, testSeams, stopping)
		if fmt.Sprint(d) != fmt.Sprint(again) {
			t.Fatalf("the plan is not a function of its input: %v, then %v", d, again)
		}
		type action struct {
			what, id string
			to       phase
		}
		var actions []action
		for _, id := range d.activate {
			actions = append(actions, action{"activate", id, active})
		}
		for _, id := range d.deactivate {
			to := pending
			if stopping {
				to = stopped
			}
			actions = append(actions, action{"deactivate", id, to})
		}
		for _, id := range d.stop {
			actions = append(actions, action{"stop", id, stopped})
		}
		for i := range rows { // as one step: what fails is decided together
			if d.fail[rows[i].id] != "" {
				rows[i].phase = failed
			}
		}
		if len(d.fail) > 0 {
			continue
		}
		if len(actions) == 0 {
			return
		}
		a := rapid.SampledFrom(actions).Draw(t, "action")
		each(rows, a.what, a.id)
		for i := range rows {
			if rows[i].id == a.id {
				rows[i].phase = a.to
			}
		}
	}
}

func activeProviders(rows []rowState, seam string) int {
	n := 0
	for _, r := range rows {
		if r.phase == active && offers(r, seam) {
			n++
		}
	}
	return n
}

func TestPlanProperties(t *testing.T) {
	t.Run("no row is activated before what it requires, whatever the order of actions", rapid.MakeCheck(func(t *rapid.T) {
		rows := drawRows(t)
		play(t, rows, false, func(rows []rowState, action, id string) {
			if action != "activate" {
				return
			}
			r := rows[slices.IndexFunc(rows, func(r rowState) bool { return r.id == id })]
			for _, need := range r.manifest.GetInjects() {
				if !need.GetOptional() && activeProviders(rows, need.GetSeam()) != 1 {
					t.Fatalf("%s is activated without %s", id, need.GetSeam())
				}
			}
		})
		for _, r := range rows {
			for _, p := range r.manifest.GetProvides() {
				if n := activeProviders(rows, p.GetSeam()); n > 1 {
					t.Fatalf("%d rows provide %s", n, p.GetSeam())
				}
			}
		}
	}))
	t.Run("the outcome does not depend on the order of actions", rapid.MakeCheck(func(t *rapid.T) {
		rows := drawRows(t)
		other := slices.Clone(rows)
		play(t, rows, false, func([]rowState, string, string) {})
		play(t, other, false, func([]rowState, string, string) {})
		for i := range rows {
			if rows[i].phase != other[i].phase {
				t.Fatalf("%s ends %s or %s", rows[i].id, rows[i].phase, other[i].phase)
			}
		}
	}))
	t.Run("when a provider dies its dependents go first, and all that can stay stays", rapid.MakeCheck(func(t *rapid.T) {
		rows := drawRows(t)
		play(t, rows, false, func([]rowState, string, string) {})
		dead := rapid.IntRange(0, len(rows)-1).Draw(t, "dead")
		if rows[dead].phase != active {
			return
		}
		rows[dead].phase = failed
		play(t, rows, false, func(rows []rowState, action, id string) {
			if action != "deactivate" {
				return
			}
			r := rows[slices.IndexFunc(rows, func(r rowState) bool { return r.id == id })]
			for _, user := range rows {
				if user.phase == active && user.id != id && slices.ContainsFunc(user.manifest.GetInjects(), func(need *pluginv1.Inject) bool {
					return !need.GetOptional() && usesSeamOf(need, r)
				}) {
					t.Fatalf("%s is deactivated while %s needs it", id, user.id)
				}
			}
		})
		for _, r := range rows {
			for _, need := range r.manifest.GetInjects() {
				if r.phase == active && !need.GetOptional() && activeProviders(rows, need.GetSeam()) == 0 {
					t.Fatalf("%s is still active without %s", r.id, need.GetSeam())
				}
			}
		}
	}))
	t.Run("stopping ends every row", rapid.MakeCheck(func(t *rapid.T) {
		rows := drawRows(t)
		play(t, rows, false, func([]rowState, string, string) {})
		play(t, rows, true, func([]rowState, string, string) {})
		for _, r := range rows {
			if r.phase != stopped {
				t.Fatalf("%s is left %s", r.id, r.phase)
			}
		}
	}))
}
