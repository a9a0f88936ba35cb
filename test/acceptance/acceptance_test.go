//go:build acceptance

// Package acceptance drives a built dsh with real clients of the Agent Client Protocol: the strict one of this folder, and acpx.
//
//	go test -tags acceptance ./test/acceptance
//
// It needs Node 20 and npm; the clients are installed by `npm ci` from the lock file. DSH names a dsh that is built already.
package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dsh is the program under test, and config its configuration with the model that needs no key. Both absolute.
var dsh, config string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dsh-acceptance")
	if err != nil {
		return fail("make a directory", err, nil)
	}
	defer os.RemoveAll(dir)
	if config, err = filepath.Abs("../../configs/acp.yaml"); err != nil {
		return fail("find configs/acp.yaml", err, nil)
	}
	if dsh = os.Getenv("DSH"); dsh == "" {
		dsh = filepath.Join(dir, "dsh")
		if out, err := exec.Command("go", "build", "-o", dsh, "github.com/dsh-go/dsh/cmd/dsh").CombinedOutput(); err != nil {
			return fail("build dsh", err, out)
		}
	}
	if out, err := install("."); err != nil {
		return fail("npm ci", err, out)
	}
	return m.Run()
}

// install installs what the lock file of a folder says, unless npm has done so since the file says it.
func install(dir string) ([]byte, error) {
	wanted, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	has, err := os.Stat(filepath.Join(dir, "node_modules/.package-lock.json"))
	if err == nil && has.ModTime().After(wanted.ModTime()) {
		return nil, nil
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = dir
	return npm.CombinedOutput()
}

func fail(what string, err error, output []byte) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n%s", what, err, output)
	return 1
}

// TestTheClientItself lets the strict client find every mistake that it knows.
func TestTheClientItself(t *testing.T) {
	p := execute(t, newHome(t), 10*time.Minute, "npm", "test")
	if p.err != nil {
		t.Fatalf("npm test: %v\n%s%s", p.err, tail(p.stdout, 60), tail(p.stderr, 20))
	}
}

// TestScripts runs every script of the strict client.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("scripts/*.json")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("find scripts: %d, %v", len(scripts), err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".json"), func(t *testing.T) {
			strict(t, config, script)
		})
	}
}

// TestAcpx runs one command each through a client that is not ours.
func TestAcpx(t *testing.T) {
	for _, tt := range []struct{ name, prompt, want string }{
		{"a command's output", "echo acpx-$((40 + 2))", "acpx-42"},
		{"a command that fails", "exit 3", "exit code 3"},
		{"a tool by name", `bash {"command": "echo tool-$((1 + 1))", "description": "Print a number"}`, "tool-2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := newHome(t)
			p := execute(t, home, 2*time.Minute, "node", "node_modules/.bin/acpx", "--approve-all", "--cwd", home.work,
				"--agent", dsh+" run -c "+config, "exec", tt.prompt)
			if p.err != nil || !bytes.Contains(p.stdout, []byte(tt.want)) {
				t.Errorf("%v, want %q in\n%s\n--- stderr\n%s", p.err, tt.want, p.stdout, tail(p.stderr, 40))
			}
			home.expectNobody(t)
		})
	}
}

// home is where one run lives: nothing of the user's, and nothing of another run.
type home struct{ dir, work string }

func newHome(t *testing.T) home {
	t.Helper()
	dir, err := os.MkdirTemp("", "dsh-home") // short: sockets are made below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := home{dir, filepath.Join(dir, "work")}
	for _, sub := range []string{"work", "state", "config", "cache", "run"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h home) env() []string {
	env := []string{
		"HOME=" + h.dir, "XDG_STATE_HOME=" + h.dir + "/state", "XDG_CONFIG_HOME=" + h.dir + "/config",
		"XDG_CACHE_HOME=" + h.dir + "/cache", "XDG_RUNTIME_DIR=" + h.dir + "/run",
	}
	for _, name := range []string{"PATH", "LANG", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// expectNobody fails the test when a process of the run is left: the host, a plugin, or a command. What the clients may leave
// at the moment they end has two seconds to go.
func (h home) expectNobody(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := h.processes()
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
	}
}

// processes are those with the run's home in their environment.
func (h home) processes() []string {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // elsewhere than on Linux there are none
	var found []string
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, []byte("HOME="+h.dir+"\x00")) {
			continue // ended meanwhile, or another user's
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		found = append(found, filepath.Base(filepath.Dir(file))+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	return found
}

// process is a program that has ended.
type process struct {
	stdout, stderr []byte
	err            error
}

// execute runs a program to its end, or to the limit; then its whole group is killed.
func execute(t *testing.T, h home, limit time.Duration, argv ...string) process {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("no end within %v", limit))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = h.env(), &stdout, &stderr, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return process{stdout.Bytes(), stderr.Bytes(), err}
}

// tail is the last lines of a text, long ones cut.
func tail(text []byte, lines int) string {
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		if len(line) > 500 {
			all[i] = line[:500] + "…"
		}
	}
	return strings.Join(all, "\n")
}
