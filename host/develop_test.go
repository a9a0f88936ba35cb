package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// pluginSource is a plugin whose Defaults tell its version.
const pluginSource = `package main

import (
	"context"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
)

const version = "VERSION"

func main() {
	m := sdk.Manifest{Name: "versioned", Provides: []sdk.Seam{bash.Seam}}
	sdk.Serve(sdk.Define(m, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
		bashv1.RegisterBashServer(c, server{})
		return nil
	}))
}

type server struct{ bashv1.UnimplementedBashServer }

func (server) Defaults(context.Context, *bashv1.DefaultsRequest) (*bashv1.DefaultsResponse, error) {
	return &bashv1.DefaultsResponse{Cwd: version}, nil
}
`

// writeModule makes a folder that is a Go module with this repository in place of the published SDK.
func writeModule(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(module), "module github.com/dsh-go/dsh", "module example.com/versioned", 1)
	text, _, _ = strings.Cut(text, "\ntool (")
	text += "\nrequire github.com/dsh-go/dsh v0.0.0\n\nreplace github.com/dsh-go/dsh => " + root + "\n"
	for name, data := range map[string][]byte{"go.mod": []byte(text), "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// goCache is the build cache in use: another home must not mean an empty one.
func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestASavedFileGoesLive(t *testing.T) {
	t.Setenv("GOCACHE", goCache(t))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOPROXY", "off")
	dir := t.TempDir()
	writeModule(t, dir)
	save := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(strings.ReplaceAll(pluginSource, "VERSION", "one"))
	file := filepath.Join(dir, "dsh.yaml")
	if err := os.WriteFile(file, []byte("plugins:\n  - {id: shell, source: .}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, log := options(t, "plugins: []\n")
	var err error
	if o.Config, err = config.Load(file, os.LookupEnv); err != nil {
		t.Fatal(err)
	}
	o.Dev = true
	o.Load = func() (*config.Config, error) { return config.Load(file, os.LookupEnv) }
	h, conn := begin(t, o)
	h.WatchConfig()
	bash := bashv1.NewBashClient(conn)
	version := func() string { return where(t, t.Context(), bash) }
	if got := version(); got != "one" {
		t.Fatalf("version %q runs", got)
	}

	save(strings.ReplaceAll(pluginSource, "VERSION", "two"))
	waitLong(t, func() bool { return version() == "two" })
	told := regexp.MustCompile(`reloaded: row=shell generation=2 changed=main.go built=[\d.]+m?s started=[\d.]+m?s held=[\d.]+[mµ]?s\n`)
	waitLong(t, func() bool { return told.MatchString(log.String()) })

	save("package main\n\nfunc main() { broken }\n")
	waitLong(t, func() bool { return strings.Contains(log.String(), "main.go:3:15: undefined: broken") })
	if got := version(); got != "two" {
		t.Errorf("while the source is broken version %q serves", got)
	}

	save(strings.ReplaceAll(pluginSource, "VERSION", "three"))
	waitLong(t, func() bool { return version() == "three" })
	if got := statusOf(t, h, "shell").Generation; got != 3 {
		t.Errorf("generation %d after two good saves", got)
	}

	if err := os.WriteFile(file, []byte("plugins:\n  - {id: shell, source: .}\n  - {id: more, plugin: hook}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitLong(t, func() bool { return len(h.Status()) == 2 })
}

// Nobody waits for the outcome of a reload that a save brings about: the log is where it is told.
func TestABrokenConfigurationIsReportedOnce(t *testing.T) {
	const sound = "plugins:\n  - {id: shell, plugin: bash}\n"
	file := filepath.Join(t.TempDir(), "dsh.yaml")
	save := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(sound)
	o, log := options(t, sound)
	var err error
	if o.Config, err = config.Load(file, os.LookupEnv); err != nil {
		t.Fatal(err)
	}
	o.Load = func() (*config.Config, error) { return config.Load(file, os.LookupEnv) }
	h, _ := begin(t, o)
	h.WatchConfig()
	before := statusOf(t, h, "shell")
	reports := func(text string) int { return strings.Count(log.String(), text) }

	save("plugins:\n  - id: [\n")
	waitLong(t, func() bool { return reports("dsh.yaml:2: ") > 0 })
	save("plugins:\n  - {id: shell, plugn: bash}\n")
	waitLong(t, func() bool { return reports(`unknown key "plugn"; did you mean "plugin"?`) > 0 })
	if after := statusOf(t, h, "shell"); after.Phase != "active" || after.PID != before.PID {
		t.Errorf("the row was %+v, is %+v", before, after)
	}
	save(sound + "  - {id: policy, plugin: hook}\n")
	waitLong(t, func() bool { return len(h.Status()) == 2 }) // what was broken has been dealt with
	if n := reports("configuration not changed: "); n != 2 {
		t.Errorf("two broken files made %d reports", n)
	}
	if after := statusOf(t, h, "shell"); after.PID != before.PID {
		t.Errorf("the row was %+v, is %+v", before, after)
	}
}
