package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// phase is where a row stands in the life of its instance; docs/design.md has the picture.
type phase string

const (
	disabled     phase = "disabled"
	starting     phase = "starting"     // the process starts and describes itself
	pending      phase = "pending"      // described; waits for what it needs
	activating   phase = "activating"   // the host waits for its activation
	active       phase = "active"       // serves
	deactivating phase = "deactivating" // the host waits for its deactivation
	restarting   phase = "restarting"   // it crashed; a new process is started after a while
	stopped      phase = "stopped"      // its process is gone, as it should be
	failed       phase = "failed"
)

// rowState is what the plan knows of a row.
type rowState struct {
	id       string
	phase    phase
	manifest *pluginv1.Manifest // nil until described
	// returning is true from a crash until the row is active again: those who need it stay active, and their calls are held.
	returning bool
}

// hostSeams are the seams that the host serves, with their services. The value of a contribution is the seam through which it is
// used: its consumers stop before its contributors do.
type hostSeams map[string]string

var usedThrough = map[string]string{"tool-provider": "tools", "tool-hook": "tools"}

// decision is what to do next. Rows that are in none of the lists stay as they are.
type decision struct {
	activate   []string
	deactivate []string
	stop       []string          // described, never active: end the process
	fail       map[string]string // row -> why
	waiting    map[string]string // pending row -> for what
}

// plan decides what to do next. It is a pure function of the rows, in the order of the configuration.
func plan(rows []rowState, seams hostSeams, stopping bool) decision {
	p := planner{rows: rows, seams: seams, decision: decision{fail: map[string]string{}, waiting: map[string]string{}}}
	if stopping {
		p.unwind()
		return p.decision
	}
	if slices.ContainsFunc(rows, func(r rowState) bool { return r.phase == starting && !r.returning }) {
		return p.decision // who provides what is known when all are described
	}
	p.findProviders()
	p.failCycles()
	for _, r := range rows {
		if p.fail[r.id] != "" {
			continue
		}
		reason := p.missing(r)
		switch {
		case r.phase == pending && reason == "":
			p.activate = append(p.activate, r.id)
		case r.phase == pending:
			p.waiting[r.id] = reason
		case r.phase == active && !p.isPresent(r, nil) && !p.isNeeded(r):
			p.deactivate = append(p.deactivate, r.id)
		}
	}
	return p.decision
}

// isPresent is true when a row serves or is about to serve again, and so are all that it requires.
func (p *planner) isPresent(r rowState, seen []string) bool {
	if r.phase != active && !r.returning {
		return false
	}
	for _, need := range r.manifest.GetInjects() {
		if _, ok := p.seams[need.GetSeam()]; ok || need.GetOptional() {
			continue
		}
		provider, ok := p.providers[need.GetSeam()]
		if !ok || !slices.Contains(seen, provider.id) && !p.isPresent(provider, append(seen, r.id)) {
			return false
		}
	}
	return true
}

// rehearse plays the plan through as if every activation succeeded. It returns the rows in an order in which they are activated, how
// each row ends, and why those that are not activated are not.
func rehearse(rows []rowState, seams hostSeams) (order []string, ends []phase, why map[string]string) {
	rows = slices.Clone(rows)
	why = map[string]string{}
	for {
		d := plan(rows, seams, false)
		for i := range rows {
			switch id := rows[i].id; {
			case d.fail[id] != "":
				rows[i].phase, why[id] = failed, d.fail[id]
			case slices.Contains(d.activate, id):
				rows[i].phase = active
				order = append(order, id)
			}
		}
		if len(d.fail)+len(d.activate) > 0 {
			continue
		}
		for i := range rows {
			ends = append(ends, rows[i].phase)
			if waiting := d.waiting[rows[i].id]; waiting != "" {
				why[rows[i].id] = waiting
			}
		}
		return order, ends, why
	}
}

// admissible checks that a row can be activated as it stands now, and that nobody is worse off for it.
func admissible(rows []rowState, seams hostSeams, id string) error {
	p := planner{rows: rows, seams: seams, decision: decision{fail: map[string]string{}}}
	p.findProviders()
	for row, why := range p.fail {
		if row == id {
			return errors.New(why)
		}
		return fmt.Errorf("row %q could not stay: %s", row, why)
	}
	for _, r := range rows {
		switch {
		case r.id == id && p.missing(r) != "":
			return errors.New(p.missing(r))
		case r.id != id && r.phase == active && !p.isPresent(r, nil):
			return fmt.Errorf("row %q could not stay: it %s", r.id, p.missing(r))
		}
	}
	return nil
}

type planner struct {
	rows      []rowState
	seams     hostSeams
	providers map[string]rowState // by seam: the first row that provides it
	decision
}

// findProviders fails rows that provide what is provided already.
func (p *planner) findProviders() {
	p.providers = map[string]rowState{}
	for _, r := range p.rows {
		if r.phase == disabled || r.phase == failed || r.phase == stopped {
			continue
		}
		for _, s := range r.manifest.GetProvides() {
			if s.GetContribution() {
				continue
			}
			if _, taken := p.seams[s.GetSeam()]; taken {
				p.fail[r.id] = fmt.Sprintf("seam %q is provided by the host", s.GetSeam())
			} else if first, taken := p.providers[s.GetSeam()]; taken {
				p.fail[r.id] = fmt.Sprintf("seam %q is already provided by row %q", s.GetSeam(), first.id)
			}
		}
		if p.fail[r.id] != "" {
			continue
		}
		for _, s := range r.manifest.GetProvides() {
			if !s.GetContribution() {
				p.providers[s.GetSeam()] = r
			}
		}
	}
}

// missing says what a row still needs; "": nothing.
func (p *planner) missing(r rowState) string {
	for _, need := range r.manifest.GetInjects() {
		if need.GetOptional() {
			continue
		}
		if service, ok := p.seams[need.GetSeam()]; ok {
			if service != need.GetService() {
				return fmt.Sprintf("needs seam %q as %s, which the host serves as %s", need.GetSeam(), need.GetService(), service)
			}
			continue
		}
		provider, ok := p.providers[need.GetSeam()]
		switch {
		case !ok:
			return p.noProvider(need.GetSeam())
		case !provides(provider, need):
			return fmt.Sprintf("needs seam %q as %s, which row %q serves in another version", need.GetSeam(), need.GetService(), provider.id)
		case provider.phase != active:
			return fmt.Sprintf("needs seam %q from row %q, which is %s", need.GetSeam(), provider.id, provider.phase)
		}
	}
	return ""
}

func (p *planner) noProvider(seam string) string {
	for _, r := range p.rows {
		if (r.phase == failed || p.fail[r.id] != "") && offers(r, seam) {
			return fmt.Sprintf("needs seam %q; row %q, which provides it, failed", seam, r.id)
		}
	}
	return fmt.Sprintf("needs seam %q, which no row provides", seam)
}

// failCycles fails the rows that wait for each other.
func (p *planner) failCycles() {
	next := func(id string) []rowState {
		var list []rowState
		for _, r := range p.rows {
			if r.id != id || r.phase != pending {
				continue
			}
			for _, need := range r.manifest.GetInjects() {
				if provider, ok := p.providers[need.GetSeam()]; ok && !need.GetOptional() && provider.phase == pending {
					list = append(list, provider)
				}
			}
		}
		return list
	}
	var walk func(path []string) []string
	walk = func(path []string) []string {
		for _, provider := range next(path[len(path)-1]) {
			if i := slices.Index(path, provider.id); i >= 0 {
				return path[i:]
			}
			if cycle := walk(append(slices.Clone(path), provider.id)); cycle != nil {
				return cycle
			}
		}
		return nil
	}
	for _, r := range p.rows {
		if p.fail[r.id] != "" {
			continue
		}
		cycle := walk([]string{r.id})
		for _, id := range cycle {
			p.fail[id] = fmt.Sprintf("rows need each other in a cycle: %s", strings.Join(append(slices.Clone(cycle), cycle[0]), " -> "))
		}
	}
}

// isNeeded is true while a row that needs this one is not yet out of the way.
func (p *planner) isNeeded(r rowState) bool {
	return slices.ContainsFunc(p.rows, func(user rowState) bool {
		if user.id == r.id || user.phase != active && user.phase != activating && user.phase != deactivating {
			return false
		}
		return slices.ContainsFunc(user.manifest.GetInjects(), func(need *pluginv1.Inject) bool {
			return !need.GetOptional() && usesSeamOf(need, r)
		})
	})
}

// usesSeamOf is true when the injection is served by the row, directly or through the host.
func usesSeamOf(need *pluginv1.Inject, r rowState) bool {
	return slices.ContainsFunc(r.manifest.GetProvides(), func(s *pluginv1.Provide) bool {
		return s.GetSeam() == need.GetSeam() && !s.GetContribution() || s.GetContribution() && usedThrough[s.GetSeam()] == need.GetSeam()
	})
}

// unwind stops rows: those first that nobody needs.
func (p *planner) unwind() {
	busy, last := false, ""
	for _, r := range p.rows {
		switch r.phase {
		case pending, restarting, failed:
			p.stop = append(p.stop, r.id)
		case active:
			last = r.id
			if !p.isNeeded(r) {
				p.deactivate = append(p.deactivate, r.id)
			}
		case starting, activating, deactivating:
			busy = true
		}
	}
	if len(p.deactivate) == 0 && !busy && last != "" { // a tool that needs the agent which needs its tools
		p.deactivate = append(p.deactivate, last)
	}
}

func provides(r rowState, need *pluginv1.Inject) bool {
	return slices.ContainsFunc(r.manifest.GetProvides(), func(s *pluginv1.Provide) bool {
		return s.GetSeam() == need.GetSeam() && s.GetService() == need.GetService()
	})
}

func offers(r rowState, seam string) bool {
	return slices.ContainsFunc(r.manifest.GetProvides(), func(s *pluginv1.Provide) bool { return s.GetSeam() == seam })
}
