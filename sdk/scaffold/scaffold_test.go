package scaffold

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const checkout = "../.."

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"a": "", "line-counter": "", "x2": "", "a-1-b": "", strings.Repeat("a", 63): "",

		"":                      "use lower-case letters",
		"Line":                  "use lower-case letters",
		"line_counter":          "use lower-case letters",
		"line.counter":          "use lower-case letters",
		"2x":                    "use lower-case letters",
		"-x":                    "use lower-case letters",
		"x-":                    "use lower-case letters",
		"x--y":                  "use lower-case letters",
		"../x":                  "use lower-case letters",
		"x\n":                   "use lower-case letters",
		"zähler":                "use lower-case letters",
		strings.Repeat("a", 64): "at most 63",
		"host":                  "another row of a configuration has this id",
		"bash":                  "another row of a configuration has this id",
		"com1":                  "the go command has no module of this name",
		"vendor":                "the go command has no module of this name",
	} {
		dir := filepath.Join(t.TempDir(), "new")
		_, err := Plugin{Name: name, Kind: "tool", SDK: checkout}.Write(dir)
		expect(t, name, err, want)
		if _, statErr := os.Stat(dir); (statErr == nil) != (err == nil) {
			t.Errorf("%q: the folder: %v", name, statErr)
		}
	}
}

func TestKindsAndModules(t *testing.T) {
	for _, test := range []struct {
		p    Plugin
		want string
	}{
		{Plugin{Name: "x", Kind: ""}, `kind "": use tool, executor, hook, model`},
		{Plugin{Name: "x", Kind: "common"}, `kind "common": use tool`},
		{Plugin{Name: "x", Kind: "tool", Module: "a b"}, `module "a b": use a path like github.com/you/x`},
		{Plugin{Name: "x", Kind: "tool", Module: "/a"}, "use a path like"},
		{Plugin{Name: "x", Kind: "tool", Module: sdkModule}, "use a path like"},
		{Plugin{Name: "x", Kind: "tool", Module: "github.com/you/dsh-x"}, ""},
		{Plugin{Name: "x", Kind: "tool", SDK: "/nowhere"}, "folder /nowhere has no go.mod of github.com/dsh-go/dsh: name a checkout of dsh with --sdk"},
	} {
		if test.p.SDK == "" {
			test.p.SDK = checkout
		}
		_, err := test.p.Write(filepath.Join(t.TempDir(), "new"))
		expect(t, test.p.Name+" "+test.p.Kind, err, test.want)
	}
}

func TestFolders(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"none":    {func(*testing.T, string) {}, ""},
		"empty":   {func(t *testing.T, dir string) { mkdir(t, dir) }, ""},
		"a file":  {func(t *testing.T, dir string) { mkdir(t, dir); write(t, filepath.Join(dir, "mine"), "x") }, "is not empty"},
		"dotfile": {func(t *testing.T, dir string) { mkdir(t, dir); write(t, filepath.Join(dir, ".git"), "x") }, "is not empty"},
		"is file": {func(t *testing.T, dir string) { write(t, dir, "x") }, "look into the folder of the plugin: "},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "new")
			test.prepare(t, dir)
			before := tree(t, parent)
			names, err := Plugin{Name: "x", Kind: "hook", SDK: checkout}.Write(dir)
			expect(t, name, err, test.want)
			if err != nil {
				if after := tree(t, parent); !slices.Equal(before, after) {
					t.Errorf("it left %q of %q", after, before)
				}
				return
			}
			want := []string{".gitignore", "README.md", "dsh.yaml", "go.mod", "go.sum", "main.go", "main_test.go"}
			if !slices.Equal(names, want) || !slices.Equal(tree(t, dir)[1:], want) {
				t.Errorf("it says %q and wrote %q, want %q", names, tree(t, dir), want)
			}
		})
	}
	if _, err := (Plugin{Name: "x", Kind: "hook", SDK: checkout}).Write("/nowhere/at/all"); err == nil {
		t.Error("a folder without a parent was made")
	}
}

func TestAReleaseIsRequiredByItsVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	names, err := Plugin{Name: "x", Kind: "model", Version: "v1.2.3"}.Write(dir)
	if err != nil || slices.Contains(names, "go.sum") {
		t.Fatal(names, err)
	}
	want := "module example.com/x\n\ngo " + leastGo + "\n\nrequire github.com/dsh-go/dsh v1.2.3\n"
	if got := read(t, filepath.Join(dir, "go.mod")); got != want {
		t.Errorf("go.mod is\n%s, want\n%s", got, want)
	}
	if !strings.Contains(read(t, filepath.Join(checkout, "go.mod")), "\ngo "+leastGo+"\n") {
		t.Errorf("go.mod does not ask for Go %s", leastGo)
	}
}

func TestACheckoutIsInPlaceOfAVersion(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a checkout")
	deep := filepath.Join(root, "cmd", "dsh")
	mkdir(t, deep)
	write(t, filepath.Join(root, "go.mod"), "module "+sdkModule+"\n\ngo 1.99\n\nrequire (\n\ta.b/c v1.0.0\n\td.e/f v0.0.0-1-2 // indirect\n)\n\nrequire g.h/i v2.0.0+incompatible\n\ntool (\n\ta.b/c/d\n)\n")
	write(t, filepath.Join(root, "go.sum"), "the sums\n")
	if found, err := FindSDK(deep); err != nil || found != root {
		t.Errorf("found %q, %v", found, err)
	}
	if found, err := FindSDK(t.TempDir()); err != nil || found != "" {
		t.Errorf("found %q, %v", found, err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := (Plugin{Name: "x", Kind: "tool", Module: "m.n/o", SDK: root, Version: "v1.2.3"}).Write(dir); err != nil {
		t.Fatal(err)
	}
	goMod := read(t, filepath.Join(dir, "go.mod"))
	for _, line := range []string{
		"module m.n/o", "go 1.99", "require github.com/dsh-go/dsh v0.0.0", `replace github.com/dsh-go/dsh => "` + root + `"`,
		"\ta.b/c v1.0.0 // indirect", "\td.e/f v0.0.0-1-2 // indirect", "\tg.h/i v2.0.0+incompatible // indirect",
	} {
		if !strings.Contains("\n"+goMod, "\n"+line+"\n") {
			t.Errorf("go.mod lacks %q:\n%s", line, goMod)
		}
	}
	if sums := read(t, filepath.Join(dir, "go.sum")); sums != "the sums\n" {
		t.Errorf("go.sum is %q", sums)
	}
}

// Two rows with one id would be a fault of the configuration.
func TestNoNameIsThatOfAnotherRow(t *testing.T) {
	id := regexp.MustCompile(`(?m)^  - id: (.*)$`)
	for _, kind := range Kinds {
		rows, err := templates.ReadFile("templates/" + kind + "/dsh.yaml.tmpl")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range id.FindAllStringSubmatch(string(rows), -1) {
			if m[1] != "{{.Name}}" && !slices.Contains(taken, m[1]) {
				t.Errorf("%s: a plugin may be named %s", kind, m[1])
			}
		}
	}
}

// The page on writing a plugin shows what is written for a tool.
func TestThePageShowsTheTool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := (Plugin{Name: "line-counter", Kind: "tool", SDK: checkout}).Write(dir); err != nil {
		t.Fatal(err)
	}
	page := read(t, filepath.Join(checkout, "docs", "writing-a-plugin.md"))
	for _, name := range []string{"main.go", "main_test.go"} {
		if !strings.Contains(page, "```go "+name+"\n"+read(t, filepath.Join(dir, name))+"```\n") {
			t.Errorf("the page shows another %s", name)
		}
	}
}

func expect(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%q: got %v, want %q", what, err, want)
	}
}

// tree is everything below a folder, as paths relative to it.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
