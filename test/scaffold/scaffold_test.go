// Package scaffold makes a plugin of each kind with `dsh plugin new`, and holds it to what is promised: it builds, its tests pass, it
// answers below dsh.
package scaffold

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-go/dsh/host/control"
)

// person is someone who has dsh, a checkout of it and no network.
type person struct {
	env  []string
	dsh  string // the program
	root string // the checkout
}

// newPerson builds dsh.
func newPerson(t *testing.T) *person {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	p := &person{dsh: filepath.Join(bin, "dsh"), root: root, env: append(os.Environ(),
		"GOCACHE="+strings.TrimSpace(string(cache)), // another home must not mean an empty one
		"GOPROXY=off", "GOWORK=off", "GOFLAGS=", // as the go command is without settings: it leaves go.mod as it is
		"XDG_STATE_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir(),
		"PATH="+bin+":"+os.Getenv("PATH"), "DSH_SOCKET=",
	)}
	p.run(t, root, "go build -o "+p.dsh+" ./cmd/dsh")
	return p
}

// try runs a command line.
func (p *person) try(t *testing.T, dir, line string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-c", line)
	c.Dir, c.Env = dir, p.env
	out, err := c.CombinedOutput()
	return string(out), err
}

// run is try with a command line that works.
func (p *person) run(t *testing.T, dir, line string) string {
	t.Helper()
	out, err := p.try(t, dir, line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// create makes a plugin and returns its folder.
func (p *person) create(t *testing.T, name, kind string) string {
	t.Helper()
	parent := t.TempDir()
	out := p.run(t, parent, fmt.Sprintf("dsh plugin new %s --kind %s --sdk %s", name, kind, p.root))
	if !strings.Contains(out, "\n  cd "+name+"\n  go test ./...\n") {
		t.Errorf("it says\n%s", out)
	}
	return filepath.Join(parent, name)
}

func TestNewPlugins(t *testing.T) {
	p := newPerson(t)
	t.Run("work as they are made", func(t *testing.T) { workAsMade(t, p) })
	t.Run("answer anew when a file is saved", func(t *testing.T) { answerAnew(t, p) })
}

func workAsMade(t *testing.T, p *person) {
	for _, test := range []struct {
		kind, suite, line, want string
		fails                   bool
	}{
		{"tool", "", `dsh call my_tool '{"path": "main.go", "filter": "func main"}'`, "1 lines\n", false},
		{"hook", "", `dsh call bash '{"command": "sudo ls", "description": "List"}'`, "Error: commands with \"sudo\" are not allowed here\n", true},
		// The whole suite takes its time; it is run for the executors of this repository, on the same engine.
		{"executor", "-run TestExecutor/command", `dsh call bash '{"command": "echo hi; exit 3", "description": "Say hi"}'`, "hi\n[exit code: 3]\n", false},
		{"model", "", "dsh prompt hello", "hello\n", false},
	} {
		t.Run(test.kind, func(t *testing.T) {
			dir := p.create(t, "my-"+test.kind, test.kind)
			if out := p.run(t, dir, "gofmt -l ."); out != "" {
				t.Errorf("gofmt would change %s", out)
			}
			p.run(t, dir, "go vet ./...")
			if out := p.run(t, dir, "go test ./... "+test.suite); strings.Contains(out, "no tests to run") {
				t.Errorf("go test says %s", out)
			}
			if out, err := p.try(t, dir, test.line); out != test.want || (err != nil) != test.fails {
				t.Errorf("%s: printed %q (%v), want %q", test.line, out, err, test.want)
			}
		})
	}
}

func answerAnew(t *testing.T, p *person) {
	dir := p.create(t, "rows", "tool")
	sockets, err := os.MkdirTemp("/tmp", "dsh") // short, and apart from the hosts of others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	dev := exec.CommandContext(t.Context(), p.dsh, "dev")
	dev.Dir, dev.Env = dir, append(slices.Clip(p.env), "XDG_RUNTIME_DIR="+sockets)
	dev.Stdout, dev.Stderr = t.Output(), t.Output()
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dev.Process.Signal(os.Interrupt)
		_ = dev.Wait()
	})
	var socket string
	eventually(t, "the control socket", func() bool {
		for _, found := range control.Find(func(name string) string { return map[string]string{"XDG_RUNTIME_DIR": sockets}[name] }) {
			if strings.HasPrefix(found, sockets+"/") { // before it is there, those of others are found
				socket = found
			}
		}
		return socket != ""
	})
	call := "dsh call --attach " + socket + ` rows '{"path": "main.go", "filter": "func main"}'`
	answers := func(want string) func() bool {
		return func() bool {
			out, _ := p.try(t, dir, call)
			return out == want
		}
	}
	eventually(t, "the first answer", answers("1 lines\n"))

	program := filepath.Join(dir, "main.go")
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte(strings.Replace(string(text), `"%d lines"`, `"%d rows"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answer of the saved file", answers("1 rows\n"))
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(60 * time.Second); !holds(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
