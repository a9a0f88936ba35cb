// Package tool is what an author of tools for a model needs: a tool is a name, a description, a struct of arguments and a
// function.
//
//	type greetArgs struct {
//		Name string `json:"name" jsonschema:"whom to greet"`
//	}
//
//	var greet = tool.New("greet", "Greets somebody.",
//		func(ctx context.Context, call *tool.Call, args greetArgs) (tool.Result, error) {
//			return tool.Text("Hello, " + args.Name + "!"), nil
//		})
//
// A plugin that provides [Provider] serves its tools with one call of [Serve] during activation. Everything else is done here,
// once, for all tools: the JSON schema, the check of the arguments, what a person sees of a call, output while it runs,
// cancellation, errors and panics.
//
// # Arguments
//
// The schema is derived from the struct: JSON tags name the properties, their order is the order of the fields, a `jsonschema`
// tag describes one, and one without omitempty is required. Use a pointer to tell absent from zero. What Run gets has been
// checked: everything the schema asks for is there and of its type, null is no value, and properties the schema does not know
// are dropped.
//
// # Failures
//
// An error of Run is not lost on the model: it reads `Error: ` and the error's text. So does it when Run panics. A tool that
// reports something bad it found (a test that fails, an exit code) returns a result, not an error.
//
// # Concurrency
//
// Calls run concurrently. The context of a call ends when it is cancelled; [context.Cause] says why. A Run that has been
// cancelled should stop what it started and then return. It may use its [Call] from several goroutines until it returns.
//
// # Testing
//
// Package tooltest calls the tools of a plugin that package plugintest runs.
package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

var (
	// Provider is the seam of a plugin that has tools.
	Provider = sdk.Seam{Name: "tool-provider", Service: toolsv1.ToolProvider_ServiceDesc.ServiceName, Contribution: true}
	// Tools is the seam of the host's registry, for those who call tools; see [NewClient].
	Tools = sdk.Seam{Name: "tools", Service: toolsv1.Tools_ServiceDesc.ServiceName}
)

// Tool is one tool. Make it with [New].
type Tool struct {
	name, description string
	schema            *jsonschema.Schema
	err               error // found by New, reported by Serve

	describe func(context.Context, *jsonschema.Schema)
	present  func(context.Context, *Call, []byte) (Presentation, error)
	run      func(context.Context, *Call, []byte) (Result, error)
}

// validName is what the models' interfaces allow.
var validName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// New makes a tool. A is the struct of its arguments; the description is for the model.
func New[A any](name, description string, run func(context.Context, *Call, A) (Result, error), options ...Option[A]) Tool {
	t := Tool{name: name, description: description}
	t.schema, t.err = argumentSchema(reflect.TypeFor[A]())
	if t.err == nil && !validName.MatchString(name) {
		t.err = fmt.Errorf("a name is 1 to 64 letters, digits, hyphens and underscores")
	}
	t.run = func(ctx context.Context, call *Call, arguments []byte) (Result, error) {
		var a A
		if err := decode(arguments, &a); err != nil {
			return Result{}, err
		}
		return run(ctx, call, a)
	}
	for _, option := range options {
		option(&t)
	}
	return t
}

// Option adds to a tool what few tools need.
type Option[A any] func(*Tool)

// Present sets how a person sees a call before it runs. present must not act. Without it, when it fails, and when the
// arguments are wrong, a person sees the tool's name and the arguments.
func Present[A any](present func(context.Context, *Call, A) (Presentation, error)) Option[A] {
	return func(t *Tool) {
		t.present = func(ctx context.Context, call *Call, arguments []byte) (Presentation, error) {
			var a A
			if err := decode(arguments, &a); err != nil {
				return Presentation{}, err
			}
			return present(ctx, call, a)
		}
	}
}

// Describe completes a copy of the schema each time the tools are listed, with what only the running system knows: a limit, a
// default. It is for descriptions; what else it changes is not checked.
func Describe[A any](describe func(context.Context, *jsonschema.Schema)) Option[A] {
	return func(t *Tool) { t.describe = describe }
}

// list is the tool as a model gets it.
func (t *Tool) list(ctx context.Context) (*toolsv1.Tool, error) {
	schema := t.schema
	if t.describe != nil {
		schema = schema.CloneSchemas()
		t.describe(ctx, schema)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("schema of tool %q: %w", t.name, err)
	}
	return &toolsv1.Tool{Name: t.name, Description: t.description, InputSchema: string(text)}, nil
}
