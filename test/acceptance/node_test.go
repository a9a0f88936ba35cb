//go:build acceptance

package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nodeExample is the plugin that is not written in Go.
const nodeExample = "../../examples/tool-node"

// TestToolOnNode holds the plugin to docs/plugins-in-other-languages.md, and the page to what dsh does.
func TestToolOnNode(t *testing.T) {
	if out, err := install(nodeExample); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	t.Run("as its README says", nodeReadme)
	t.Run("calls", nodeCalls)
	t.Run("reload and death of the host", nodeReload)
	t.Run("end of the liveness pipe", nodeLiveness)
}

// nodeReadme runs the command that the README shows, and expects what it shows.
func nodeReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(nodeExample, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^    (?:go run \./cmd/)(dsh call .*)\n\nprints\n\n    (.*)$`).FindSubmatch(text)
	if shown == nil {
		t.Fatal("the README shows no call")
	}
	h := newHome(t)
	p := execute(t, h, time.Minute, "bash", "-c", "cd ../.. && "+strings.Replace(string(shown[1]), "dsh", dsh, 1))
	if want := string(shown[2]) + "\n"; p.err != nil || string(p.stdout) != want {
		t.Errorf("%v, printed %q, want %q\n%s", p.err, p.stdout, want, tail(p.stderr, 20))
	}
	h.expectNobody(t)
}

func nodeCalls(t *testing.T) {
	dev := startNode(t)
	for _, tt := range []struct {
		tool, arguments, want string
		fails                 bool
	}{
		{"word_count", `{"text":"one, two – three"}`, "3 words, 3 so far\n", false},
		{"word_count", `{}`, "Error: invalid arguments: missing required property \"text\"\n", true},
		{"word_count", `{"text":7}`, "Error: invalid arguments: \"text\" must be a string\n", true},
		{"word_count", `["text"]`, "Error: invalid arguments: \"arguments\" must be an object\n", true},
		{"word_count", `{"text`, "Error: invalid arguments: \"arguments\" must be an object\n", true},
		{"clock", `{"times":0}`, "Error: invalid arguments: \"times\" must be at least 1\n", true},
	} {
		p := dev.call(tt.tool, tt.arguments)
		if string(p.stdout) != tt.want || (p.err != nil) != tt.fails {
			t.Errorf("%s %s: %v, printed %q, want %q\n%s", tt.tool, tt.arguments, p.err, p.stdout, tt.want, tail(p.stderr, 20))
		}
	}

	// Who interrupts a call sees what came until then, and its result. In the foreground timeout sends one signal; a second would break off.
	began := time.Now()
	p := execute(t, dev.home, time.Minute, "timeout", "--foreground", "-s", "INT", "3", dsh, "call", "--attach", dev.socket, "clock", `{"times":60}`)
	lines := strings.Split(strings.TrimSpace(string(p.stdout)), "\n")
	if last := lines[len(lines)-1]; len(lines) < 2 || last != "Error: the call was cancelled" || time.Since(began) > 20*time.Second {
		t.Errorf("a cancelled call printed %q after %v\n%s", p.stdout, time.Since(began), tail(p.stderr, 20))
	}

	if p := execute(t, dev.home, time.Minute, dsh, "stop", "--attach", dev.socket); p.err != nil {
		t.Errorf("dsh stop: %v\n%s", p.err, p.stderr)
	}
	dev.home.expectNobody(t)
	if log := dev.log(); strings.Contains(log, "[ERROR]") || strings.Contains(log, "[WARN]") {
		t.Errorf("the log complains:\n%s", log)
	}
}

func nodeReload(t *testing.T) {
	dev := startNode(t)
	tools := filepath.Join(dev.dir, "tools.mjs")
	source, err := os.ReadFile(tools)
	if err != nil {
		t.Fatal(err)
	}
	words := 0
	count := func() (unit string) {
		t.Helper()
		p := dev.call("word_count", `{"text":"two words"}`)
		words += 2
		rest, found := strings.CutPrefix(string(p.stdout), fmt.Sprintf("2 words, %d ", words))
		if p.err != nil || !found {
			t.Fatalf("%v, printed %q, want %d words in all\n%s\n%s", p.err, p.stdout, words, tail(p.stderr, 20), dev.log())
		}
		return strings.TrimSpace(rest)
	}
	save := func(source string) {
		t.Helper()
		if err := os.WriteFile(tools, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(); got != "so far" {
		t.Fatalf("at first: %q", got)
	}

	save(strings.ReplaceAll(string(source), "so far", "in all"))
	dev.await("the new version to answer", func() bool { return count() == "in all" })

	save("no JavaScript")
	dev.await("the failed reload to be logged", func() bool { return strings.Contains(dev.log(), "the old instance serves on") })
	if got := count(); got != "in all" {
		t.Errorf("after a reload that failed: %q", got)
	}

	if err := dev.host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	dev.home.expectNobody(t)
}

// nodeLiveness starts the plugin as a host does, but lets it live until it notices by itself that the host is gone: so it is where no
// kernel kills it.
func nodeLiveness(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	h := newHome(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(nodeExample, "plugin.mjs"))
	cmd.Env = append(h.env(), "DSH_PLUGIN=d57e1f04-0a5c-4f0e-9a0d-6d5f5c8a7f21", fmt.Sprintf("DSH_HOST_PID=%d", os.Getpid()),
		"DSH_LIVENESS_FD=3", "PLUGIN_UNIX_SOCKET_DIR="+h.dir+"/run")
	cmd.ExtraFiles = []*os.File{read}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	line := make([]byte, 200)
	n, _ := stdout.Read(line)
	if want := "1|1|unix|" + h.dir + "/run/life|grpc\n"; string(line[:n]) != want {
		t.Errorf("the handshake is %q, want %q", line[:n], want)
	}
	write.Close()
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || stderr.Len() > 0 {
		t.Errorf("without its host it ended with %v, want exit status 1\n%s", err, &stderr)
	}
}

// nodeHost is a dsh in dev mode with a copy of the plugin that can be changed.
type nodeHost struct {
	t      *testing.T
	home   home
	dir    string
	host   *exec.Cmd
	socket string
}

func startNode(t *testing.T) nodeHost {
	t.Helper()
	h := newHome(t)
	n := nodeHost{t: t, home: h, dir: filepath.Join(h.dir, "copy/examples/tool-node")}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plugin.mjs", "tools.mjs", "package.json", "dsh.yaml"} {
		text, err := os.ReadFile(filepath.Join(nodeExample, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(n.dir, name), text, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"sdk": "../../sdk", "examples/tool-node/node_modules": nodeExample + "/node_modules"} {
		target, err := filepath.Abs(target)
		if err == nil {
			err = os.Symlink(target, filepath.Join(h.dir, "copy", link))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.host = exec.Command(dsh, "dev", "-c", filepath.Join(n.dir, "dsh.yaml"))
	n.host.Env, n.host.Stderr, n.host.SysProcAttr = h.env(), log, &syscall.SysProcAttr{Setpgid: true}
	stdin, err := n.host.StdinPipe() // the host ends with its input
	if err != nil {
		t.Fatal(err)
	}
	if err := n.host.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = n.host.Wait() // a dead child would count as left behind
		close(ended)
	}()
	t.Cleanup(func() {
		stdin.Close()
		_ = n.host.Process.Kill()
		<-ended
	})
	n.await("the plugin to be ready", func() bool { return strings.Contains(n.log(), "dsh.tool-node: ready: ") })
	sockets, _ := filepath.Glob(filepath.Join(h.dir, "run/dsh-*/*/control"))
	if len(sockets) != 1 {
		t.Fatalf("control sockets: %q", sockets)
	}
	n.socket = sockets[0]
	return n
}

// call makes one call of a tool of the running host.
func (n nodeHost) call(tool, arguments string) process {
	n.t.Helper()
	return execute(n.t, n.home, time.Minute, dsh, "call", "--attach", n.socket, tool, arguments)
}

func (n nodeHost) log() string {
	text, _ := os.ReadFile(filepath.Join(n.home.dir, "log"))
	return string(text)
}

// await waits for something that is seen by looking again and again.
func (n nodeHost) await(what string, is func() bool) {
	n.t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(30 * time.Second); !is(); <-look.C {
		if time.Now().After(deadline) {
			n.t.Fatalf("waited in vain for %s\n%s", what, n.log())
		}
	}
}
