// Package docs takes the programs out of the pages of the documentation and builds them, so that what a page shows works.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// file is a block of a page that has a file's name after its language.
var file = regexp.MustCompile("(?ms)^```go (\\S+)\n(.*?)^```$")

// WriteModule writes the files that a page of docs shows into a Go module of their own, outside the repository, with the
// repository in place of the published one. It returns the module's directory.
func WriteModule(t testing.TB, page string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, block := range file.FindAllSubmatch(text, -1) {
		write(t, filepath.Join(dir, string(block[1])), block[2])
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.sum"), sums)
	write(t, filepath.Join(dir, "go.mod"), module)
	goTool(t, dir, "mod", "edit", "-module=example.com/line-counter",
		"-require=github.com/dsh-go/dsh@v0.0.0", "-replace=github.com/dsh-go/dsh="+root)
	return dir
}

// BuildProgram builds the program that a page of docs shows and returns its path.
func BuildProgram(t testing.TB, page string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	goTool(t, WriteModule(t, page), "build", "-o", program, ".")
	return program
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// goTool runs the go command without the network.
func goTool(t testing.TB, dir string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
}
