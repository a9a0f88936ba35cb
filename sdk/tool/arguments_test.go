package tool_test

import (
	"context"
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/tool"
	"github.com/dsh-go/dsh/sdk/tool/tooltest"
)

// allArgs has an argument of each type.
type allArgs struct {
	Command string         `json:"command"`
	Count   int            `json:"count"`
	Limit   *float64       `json:"timeoutMs,omitempty"`
	Small   uint8          `json:"small,omitempty"`
	Force   bool           `json:"force,omitempty"`
	List    []string       `json:"list,omitempty"`
	Edits   []edit         `json:"edits,omitempty"`
	Edit    *edit          `json:"edit,omitempty"`
	Env     map[string]int `json:"env,omitempty"`
	Any     any            `json:"any,omitempty"`
}

type edit struct {
	Old string `json:"old"`
	New string `json:"new,omitempty"`
}

// echo returns the arguments that it got, as JSON.
var echo = tool.New("echo", "Echoes.", func(_ context.Context, _ *tool.Call, args allArgs) (tool.Result, error) {
	text, err := json.Marshal(args)
	return tool.Text(string(text)), err
})

func TestArgumentErrors(t *testing.T) {
	provider := serve(t, echo)
	for name, test := range map[string]struct{ arguments, want string }{
		"all violations at once, in declaration order": {`{"timeoutMs":"5","count":"x"}`,
			`missing required property "command"; "count" must be an integer; "timeoutMs" must be a number`},
		"an empty string is an empty object": {``, `missing required property "command"; missing required property "count"`},
		"blank is an empty object":           {" \n", `missing required property "command"; missing required property "count"`},
		"null is not absent":                 {`{"command":null,"count":1,"timeoutMs":null}`, `"command" must be a string; "timeoutMs" must be a number`},
		"a string":                           {`{"command":1,"count":1}`, `"command" must be a string`},
		"an integer":                         {`{"command":"c","count":1.5}`, `"count" must be an integer`},
		"a boolean":                          {`{"command":"c","count":1,"force":"true"}`, `"force" must be a boolean`},
		"an array":                           {`{"command":"c","count":1,"list":"a"}`, `"list" must be an array`},
		"an array is not null":               {`{"command":"c","count":1,"list":null}`, `"list" must be an array`},
		"an object":                          {`{"command":"c","count":1,"edit":[]}`, `"edit" must be an object`},
		"an item":                            {`{"command":"c","count":1,"list":["a",2]}`, `"list[1]" must be a string`},
		"a property of an item":              {`{"command":"c","count":1,"edits":[{"old":"a"},{"new":3}]}`, `missing required property "edits[1].old"; "edits[1].new" must be a string`},
		"a value of a map":                   {`{"command":"c","count":1,"env":{"B":"x","A":true}}`, `"env.A" must be an integer; "env.B" must be an integer`},
		"too small":                          {`{"command":"c","count":1,"small":-1}`, `"small" must be at least 0`},
		"too large":                          {`{"command":"c","count":1,"small":256}`, `"small" must be at most 255`},
		"an integer beyond Go's":             {`{"command":"c","count":9223372036854775808}`, `"count" is out of range`},
		"an integer beyond reason":           {`{"command":"c","count":1e999999999}`, `"count" is out of range`},
		"a fraction beyond reason":           {`{"command":"c","count":1e-999999999}`, `"count" must be an integer`},
		"a number beyond Go's":               {`{"command":"c","count":1,"timeoutMs":1e999}`, `"timeoutMs" is out of range`},
		"names are told apart by case":       {`{"Command":"c","count":1}`, `missing required property "command"`},
		"an array instead of an object":      {`[]`, `"arguments" must be an object`},
		"a string instead of an object":      {`"{}"`, `"arguments" must be an object`},
		"null instead of an object":          {`null`, `"arguments" must be an object`},
		"malformed JSON":                     {`{"command":"ec`, `"arguments" must be an object`},
		"more than one value":                {`{} {}`, `"arguments" must be an object`},
	} {
		t.Run(name, func(t *testing.T) {
			got := tooltest.Execute(t, provider, call("echo", test.arguments)).Result
			if want := failure("ToolArgsError", "INVALID_ARGS", "Error: invalid arguments: "+test.want); !proto.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

func TestArgumentsThatAreTaken(t *testing.T) {
	provider := serve(t, echo)
	for name, test := range map[string]struct{ arguments, want string }{
		"the required ones are enough":       {`{"command":"c","count":1}`, `{"command":"c","count":1}`},
		"zero is present":                    {`{"command":"","count":0,"timeoutMs":0}`, `{"command":"","count":0,"timeoutMs":0}`},
		"an integer may be written as 5.0":   {`{"command":"c","count":5.0}`, `{"command":"c","count":5}`},
		"an integer may be written as 5e2":   {`{"command":"c","count":5e2}`, `{"command":"c","count":500}`},
		"integers are exact":                 {`{"command":"c","count":9007199254740993}`, `{"command":"c","count":9007199254740993}`},
		"unknown properties are ignored":     {`{"command":"c","count":1,"extra":[1],"edit":{"old":"a","x":1}}`, `{"command":"c","count":1,"edit":{"old":"a"}}`},
		"a name in other case is unknown":    {`{"command":"c","count":1,"COMMAND":"rm","TimeoutMs":3}`, `{"command":"c","count":1}`},
		"any value":                          {`{"command":"c","count":1,"any":{"a":[null]}}`, `{"command":"c","count":1,"any":{"a":[null]}}`},
		"a NUL byte is a character like any": {`{"command":"a\u0000b","count":1}`, `{"command":"a\u0000b","count":1}`},
		"a lone surrogate is replaced":       {`{"command":"\ud800","count":1}`, "{\"command\":\"\uFFFD\",\"count\":1}"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tooltest.Execute(t, provider, call("echo", test.arguments))
			if got.Result.GetIsError() || got.Text() != test.want {
				t.Errorf("got %v, want %s", got.Result, test.want)
			}
		})
	}
}
