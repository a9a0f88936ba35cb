package tool_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/tool"
	"github.com/dsh-go/dsh/sdk/tool/tooltest"
)

func TestPresentation(t *testing.T) {
	run := func(context.Context, *tool.Call, greetArgs) (tool.Result, error) { return tool.Text("ok"), nil }
	own := func(p tool.Presentation, err error) tool.Tool {
		return tool.New("greet", "", run, tool.Present(func(context.Context, *tool.Call, greetArgs) (tool.Presentation, error) { return p, err }))
	}
	full := tool.Presentation{Title: "Greet", Kind: tool.KindFetch, RawInput: "<Ann> & co", TerminalCwd: "/tmp"}
	generic := func(name string, kind tool.Kind, rawInput string) *toolsv1.Presentation {
		return &toolsv1.Presentation{Title: name, Kind: kind, RawInput: rawInput}
	}
	other := toolsv1.Presentation_KIND_OTHER
	for name, test := range map[string]struct {
		tool            tool.Tool
		name, arguments string
		want            *toolsv1.Presentation
	}{
		"the tool's own": {own(full, nil), "greet", `{"name":"Ann"}`,
			&toolsv1.Presentation{Title: "Greet", Kind: toolsv1.Presentation_KIND_FETCH, RawInput: `"<Ann> & co"`, Terminal: &toolsv1.Terminal{Cwd: "/tmp"}}},
		"what is left out is generic":   {own(tool.Presentation{Title: "Greet"}, nil), "greet", `{"name":"Ann"}`, &toolsv1.Presentation{Title: "Greet", Kind: other, RawInput: `{"name":"Ann"}`}},
		"a title that is no UTF-8":      {own(tool.Presentation{Title: "a\xff"}, nil), "greet", `{"name":"Ann"}`, &toolsv1.Presentation{Title: "a\uFFFD", Kind: other, RawInput: `{"name":"Ann"}`}},
		"none":                          {greet, "greet", `{"name":"Ann"}`, generic("greet", other, `{"name":"Ann"}`)},
		"a presenter that fails":        {own(full, errors.New("no")), "greet", `{"name":"Ann"}`, generic("greet", other, `{"name":"Ann"}`)},
		"a presenter that panics":       {panicking, "greet", `{"name":"Ann"}`, generic("greet", other, `{"name":"Ann"}`)},
		"raw input that is no JSON":     {own(tool.Presentation{RawInput: func() {}}, nil), "greet", `{"name":"Ann"}`, generic("greet", other, `{"name":"Ann"}`)},
		"wrong arguments":               {own(full, nil), "greet", `{"name":1}`, generic("greet", other, `{"name":1}`)},
		"malformed arguments":           {own(full, nil), "greet", `{"name":"<A`, generic("greet", other, `"{\"name\":\"<A"`)},
		"empty arguments":               {own(full, nil), "greet", "", generic("greet", other, `{}`)},
		"an unknown tool":               {greet, "nope", `{}`, generic("nope", other, `{}`)},
		"a name that begins with bash":  {greet, "bash_x", `{}`, generic("bash_x", toolsv1.Presentation_KIND_EXECUTE, `{}`)},
		"a name that begins with read":  {greet, "read_file", `{}`, generic("read_file", toolsv1.Presentation_KIND_READ, `{}`)},
		"a name that begins with write": {greet, "write", `{}`, generic("write", toolsv1.Presentation_KIND_EDIT, `{}`)},
		"a name that begins with edit":  {greet, "editor", `{}`, generic("editor", toolsv1.Presentation_KIND_EDIT, `{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			provider := serve(t, test.tool)
			answer, err := toolsv1.NewToolProviderClient(provider).Present(t.Context(), &toolsv1.PresentRequest{Call: call(test.name, test.arguments)})
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.GetPresentation(); !proto.Equal(got, test.want) {
				t.Errorf("present says\n%v, want\n%v", got, test.want)
			}
			if got := tooltest.Execute(t, provider, call(test.name, test.arguments)).Presentation; !proto.Equal(got, test.want) {
				t.Errorf("execute sends\n%v, want\n%v", got, test.want)
			}
		})
	}
}

var panicking = tool.New("greet", "", func(context.Context, *tool.Call, greetArgs) (tool.Result, error) { return tool.Text("ok"), nil },
	tool.Present(func(context.Context, *tool.Call, greetArgs) (tool.Presentation, error) { panic("no") }))
