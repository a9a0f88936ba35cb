package agent

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

// The options of a session.
const (
	optionModel = "model"
	optionMode  = "mode"
)

// offered are the options of all sessions as they are now, those with more than one value; without what is current.
func (a *agent) offered(ctx context.Context) ([]*agentsv1.Option, error) {
	models, err := a.model.Models(ctx)
	if err != nil {
		return nil, status.Errorf(status.Code(err), "list the models: %s", status.Convert(err).Message())
	}
	_, modes, err := a.list.get(ctx)
	if err != nil {
		return nil, status.Errorf(status.Code(err), "list the modes: %s", status.Convert(err).Message())
	}
	var options []*agentsv1.Option
	for _, o := range []*agentsv1.Option{modelOption(models), modeOption(modes)} {
		if len(o.GetValues()) > 1 {
			options = append(options, o)
		}
	}
	return options, nil
}

func modelOption(models []*llm.ModelInfo) *agentsv1.Option {
	o := &agentsv1.Option{Id: optionModel, Name: "Model"}
	for _, m := range models {
		o.Values = append(o.Values, &agentsv1.Option_Value{Id: m.GetId(), Name: m.GetName()})
	}
	return o
}

func modeOption(modes []*toolsv1.Mode) *agentsv1.Option {
	o := &agentsv1.Option{Id: optionMode, Name: "Mode"}
	for _, m := range modes {
		o.Values = append(o.Values, &agentsv1.Option_Value{Id: m.GetId(), Name: m.GetName(), Description: m.GetDescription()})
	}
	return o
}

// pick is the chosen value of an option. Empty: the default, because nothing was chosen or it is no longer offered.
func pick(o *agentsv1.Option, chosen string) string {
	for _, v := range o.GetValues() {
		if v.GetId() == chosen {
			return chosen
		}
	}
	return ""
}

// options are what can be chosen for the session, and what is.
func (s *session) options(ctx context.Context) ([]*agentsv1.Option, error) {
	options, err := s.agent.offered(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		if o.Current = pick(o, s.chosen(o.GetId())); o.GetCurrent() == "" {
			o.Current = o.GetValues()[0].GetId()
		}
	}
	return options, nil
}

// setOption logs a choice.
func (s *session) setOption(ctx context.Context, option, value string) error {
	options, err := s.options(ctx)
	if err != nil {
		return err
	}
	if err := checkChoice(options, option, value); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReleased() {
		return errReleased
	}
	if s.conv.chosen[option] == value {
		return nil
	}
	return s.appendOutside(&agents.SessionOption{Option: option, Value: value})
}

func checkChoice(options []*agentsv1.Option, option, value string) error {
	for _, o := range options {
		switch {
		case o.GetId() != option:
		case pick(o, value) == "":
			return status.Errorf(codes.InvalidArgument, "the %s %q is not offered", option, value)
		default:
			return nil
		}
	}
	return status.Errorf(codes.InvalidArgument, "there is no choice of %q", option)
}

func (s *session) chosen(option string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conv.chosen[option]
}

// modelName is the model that the next request names. Empty: the default.
func (s *session) modelName(ctx context.Context) (string, error) {
	chosen := s.chosen(optionModel)
	if chosen == "" {
		return "", nil
	}
	models, err := s.agent.model.Models(ctx)
	if err != nil {
		return "", fmt.Errorf("list the models: %s", status.Convert(err).Message())
	}
	return pick(modelOption(models), chosen), nil
}
