package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk/scaffold"
)

func TestTheSDKOfANewPlugin(t *testing.T) {
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		built, named string
		want         scaffold.Plugin
	}{
		{"v1.2.3", "", scaffold.Plugin{Version: "v1.2.3"}},
		{"v1.2.3", "/named", scaffold.Plugin{SDK: "/named"}},
		{"(devel)", "/named", scaffold.Plugin{SDK: "/named"}},
		{"(devel)", "", scaffold.Plugin{SDK: checkout}},
		{"", "", scaffold.Plugin{SDK: checkout}},
		{"v1.2.3+dirty", "", scaffold.Plugin{SDK: checkout}},
		{"v0.0.0-20261201041046-59625d8aaaaa+dirty", "", scaffold.Plugin{SDK: checkout}},
		{"v1.2.4-0.20261201041046-59625d8aaaaa", "", scaffold.Plugin{SDK: checkout}},
	} {
		got := scaffold.Plugin{SDK: test.named}
		if err := chooseSDK(&got, test.built); err != nil || got != test.want {
			t.Errorf("built as %q with --sdk %q: got %+v, %v, want %+v", test.built, test.named, got, err, test.want)
		}
	}
}

// What a published SDK needs is for the go command to find.
func TestWhatToDoNextWithAPublishedSDK(t *testing.T) {
	var out strings.Builder
	printNew(&out, scaffold.Plugin{Name: "echo", Kind: "model", Version: "v1.2.3"}, "echo", []string{"main.go"})
	want := "echo, a plugin of the kind model, in echo: main.go\n\n" +
		"Next:\n  cd echo\n  go mod tidy\n  go test ./...\n  dsh prompt hello\n  dsh dev\n"
	if out.String() != want {
		t.Errorf("it says\n%s, want\n%s", out.String(), want)
	}
}
