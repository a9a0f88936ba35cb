package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

// versioned is a tool plugin that tells its version.
const versioned = `package main

import (
	"context"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/tool"
)

const version = "VERSION"

type args struct{}

func main() {
	m := sdk.Manifest{Name: "versioned", Version: version, Provides: []sdk.Seam{tool.Provider}}
	sdk.Serve(sdk.Define(m, sdk.NoConfig{}, func(c *sdk.Context, _ sdk.NoConfig) error {
		return tool.Serve(c, tool.New("version", "Tell the version.", func(context.Context, *tool.Call, args) (tool.Result, error) {
			return tool.Text(version), nil
		}))
	}))
}
`

// writeModule makes a folder that is a Go module with this repository in place of the published SDK.
func writeModule(b *testing.B, dir string) {
	b.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			b.Fatal(err)
		}
		if name == "go.mod" {
			_, rest, _ := strings.Cut(string(data), "\n")
			rest, _, _ = strings.Cut(rest, "\ntool (")
			data = []byte("module example.com/versioned\n" + rest + "\nrequire github.com/dsh-go/dsh v0.0.0\n\nreplace github.com/dsh-go/dsh => " + root + "\n")
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSave is the time from a save to the new version serving, in dev mode, beside that of the build alone.
func BenchmarkSave(b *testing.B) {
	b.Setenv("GOCACHE", goCache(b)) // another cache directory would mean an empty one
	b.Setenv("XDG_CACHE_HOME", b.TempDir())
	b.Setenv("GOFLAGS", "-mod=mod")
	dir := b.TempDir()
	writeModule(b, dir)
	version := 0
	save := func() string {
		version++
		text := fmt.Sprintf("v%d-%d", os.Getpid(), version)
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.ReplaceAll(versioned, "VERSION", text)), 0o600); err != nil {
			b.Fatal(err)
		}
		return text
	}
	b.Run("floor-build", func(b *testing.B) {
		program := filepath.Join(b.TempDir(), "versioned")
		measure(b, func() {
			save()
			build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".") // as the host does
			build.Dir = dir
			if out, err := build.CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
		})
	})
	b.Run("save", func(b *testing.B) {
		save()
		file := filepath.Join(dir, "dsh.yaml")
		if err := os.WriteFile(file, []byte("plugins:\n  - {id: versioned, source: .}\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		load := func() (*config.Config, error) { return config.Load(file, os.LookupEnv) }
		c, err := load()
		if err != nil {
			b.Fatal(err)
		}
		client := tool.NewClient(start(b, host.Options{Config: c, Dev: true, Load: load}))
		asks := time.NewTicker(5 * time.Millisecond) // more often, and the asking would slow the build
		defer asks.Stop()
		var took times
		for range b.N {
			began := time.Now()
			for want, said := save(), ""; said != want; <-asks.C {
				result, err := client.Execute(b.Context(), &toolsv1.Call{Name: "version", Arguments: "{}"}, tool.Watch{})
				if err != nil || result.GetIsError() {
					b.Fatalf("%v %v", result, err)
				}
				said = result.GetContent()[0].GetText()
			}
			took = append(took, time.Since(began))
			pause := time.NewTimer(2 * time.Second) // nobody saves again before dev mode has looked what the program is made of
			<-pause.C
		}
		took.report(b)
	})
}

func goCache(b *testing.B) string {
	b.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
