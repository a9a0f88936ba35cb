package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

// choosing is an agent with two models and two modes.
func choosing(t *testing.T) *world {
	w := newWorld(t)
	w.models = []*llm.ModelInfo{{Id: "small", Name: "Small"}, {Id: "big", Name: "Big"}}
	w.modes = []*toolsv1.Mode{{Id: "ask", Name: "Ask"}, {Id: "auto", Name: "Auto", Description: "no questions"}}
	return w
}

// options shows what can be chosen for a session.
func (w *world) options(session string) string {
	w.t.Helper()
	options, err := w.Options(w.t.Context(), session)
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, o := range options {
		line := fmt.Sprintf("%s %q = %s:", o.ID, o.Name, o.Current)
		for _, v := range o.Values {
			line += fmt.Sprintf(" %s %q %q", v.ID, v.Name, v.Description)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (w *world) set(session, option, value string) {
	w.t.Helper()
	if err := w.SetOption(w.t.Context(), session, option, value); err != nil {
		w.t.Error(err)
	}
}

func TestOptionsAreOnlyWhereThereIsAChoice(t *testing.T) {
	w := newWorld(t)
	session := w.create()
	equal(t, "an adapter without models", w.options(session), ``)
	w.models, w.modes = []*llm.ModelInfo{{Id: "only", Name: "Only"}}, []*toolsv1.Mode{{Id: "only"}}
	equal(t, "one of each", w.options(session), ``)
	wantStatus(t, w.SetOption(t.Context(), session, "model", "only"), codes.InvalidArgument, `there is no choice of "model"`)
	w.models = append(w.models, &llm.ModelInfo{Id: "more", Name: "More"})
	equal(t, "two models", w.options(session), `model "Model" = only: only "Only" "" more "More" ""`)
	wantStatus(t, w.SetOption(t.Context(), session, "model", "mode"), codes.InvalidArgument, `the model "mode" is not offered`)
	_, err := w.Options(t.Context(), "ghost")
	wantStatus(t, err, codes.NotFound, "unknown session: ghost")
	wantStatus(t, w.SetOption(t.Context(), "ghost", "model", "more"), codes.NotFound, "unknown session: ghost")
}

func TestAChoiceIsPartOfItsSession(t *testing.T) {
	w := choosing(t)
	w.model, w.tool = asks([]string{"c1 bash {}"}, nil, []string{"c2 bash {}"}, nil, []string{"c3 bash {}"}), echo
	session, other := w.create(), w.create()
	w.rest(w.send(session, "default"))
	w.set(session, "model", "big")
	w.set(session, "mode", "auto")
	w.set(session, "mode", "auto") // nothing new
	w.rest(w.send(session, "chosen"))
	equal(t, "other session", w.options(other), `
model "Model" = small: small "Small" "" big "Big" ""
mode "Mode" = ask: ask "Ask" "" auto "Auto" "no questions"`)

	w.restart()
	w.load(session)
	equal(t, "loaded", w.options(session), `
model "Model" = big: small "Small" "" big "Big" ""
mode "Mode" = auto: ask "Ask" "" auto "Auto" "no questions"`)
	if got := show(w.history(session)); strings.Count(got, "session/option") != 2 {
		t.Errorf("history\n%s", got)
	}
	w.models, w.modes = w.models[:1], nil // a stored value that is no longer offered
	w.rest(w.send(session, "gone"))
	var models, modes []string
	for _, r := range w.requests {
		models = append(models, r.GetModel())
	}
	for _, c := range w.calls {
		modes = append(modes, c.GetMode())
	}
	if fmt.Sprintf("%q %q", models, modes) != `["" "" "big" "big" "" ""] ["" "auto" ""]` {
		t.Errorf("models %q, modes %q", models, modes)
	}
}

func TestAChoiceDuringATurnHoldsFromTheNextRequestAndCall(t *testing.T) {
	w := choosing(t)
	session := w.create()
	w.model = asks([]string{"c1 bash {}", "c2 bash {}"})
	w.tool = func(call *toolsv1.Call, cancelled <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		if call.GetCallId() == "c1" {
			w.set(session, "mode", "auto")
			w.set(session, "model", "big")
		}
		return echo(call, cancelled, send)
	}
	got := show(w.rest(w.send(session, "hi")))
	if !strings.Contains(got, "session/option mode auto\nsession/option model big\ntool/call c1") {
		t.Errorf("turn\n%s", got)
	}
	if w.calls[0].GetMode() != "" || w.calls[1].GetMode() != "auto" || w.request(0).GetModel() != "" || w.request(1).GetModel() != "big" {
		t.Errorf("calls %v, requests for %q and %q", w.calls, w.request(0).GetModel(), w.request(1).GetModel())
	}
}

func TestAChoiceReachesASessionThroughTheSuccessor(t *testing.T) {
	old := choosing(t)
	old.model = hang
	session := old.create()
	running := old.send(session, "long")
	old.until(running, "assistant/chunk")
	successor := old.reload()
	successor.set(session, "mode", "auto")
	if got := successor.options(session); !strings.Contains(got, `"Mode" = auto`) {
		t.Error(got)
	}
	successor.cancel(session, "long")
	old.until(running, "turn/end")
	if got := successor.options(session); !strings.Contains(got, `"Mode" = auto`) {
		t.Error(got)
	}
}

func TestModelsThatCannotBeListed(t *testing.T) {
	w := choosing(t)
	session := w.create()
	w.set(session, "model", "big")
	w.modelsErr = status.Error(codes.Unavailable, "plugin llm crashed")
	_, err := w.Options(t.Context(), session)
	wantStatus(t, err, codes.Unavailable, "list the models: plugin llm crashed")
	if got := show(w.rest(w.send(session, "hi"))); !strings.HasSuffix(got, "step/end\nturn/end error: list the models: plugin llm crashed") {
		t.Errorf("turn\n%s", got)
	}
	w.modelsErr, w.list = nil, func(context.Context) error { return errors.New("boom") }
	_, err = w.Options(t.Context(), session)
	wantStatus(t, err, codes.Unknown, "list the modes: boom")
}
