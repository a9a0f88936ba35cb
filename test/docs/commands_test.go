package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shell runs a command line as a reader of a page would, with a home of its own.
func shell(t *testing.T, dir, line string, path ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-c", line)
	c.Dir = dir
	c.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "LLM_API_KEY=none",
		"PATH="+strings.Join(append(path, os.Getenv("PATH")), ":"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// buildDsh builds dsh and returns the folder it is in.
func buildDsh(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	shell(t, "../..", "go build -o "+filepath.Join(dir, "dsh")+" ./cmd/dsh")
	return dir
}

// indented are the command lines of a page that stand in indented blocks, without their comments.
func indented(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	fenced := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if rest, ok := strings.CutPrefix(line, "    "); ok && !fenced {
			lines = append(lines, strings.TrimSpace(regexp.MustCompile(`\s+# .*`).ReplaceAllString(rest, "")))
		}
	}
	return lines
}

func TestTheCommandsOfTheReadmeWork(t *testing.T) {
	lines := indented(t, "../../README.md")
	if len(lines) < 6 {
		t.Fatalf("found only the commands %q", lines)
	}
	ci, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join("..", "..", "dsh")
	if _, err := os.Stat(program); os.IsNotExist(err) {
		t.Cleanup(func() { os.Remove(program) })
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "go test ") { // this very test
			if !strings.Contains(string(ci), line) {
				t.Errorf(".ci/run does not run %q", line)
			}
			continue
		}
		t.Log(line)
		out := shell(t, "../..", line)
		if strings.Contains(line, "uname") && !strings.Contains(out, "\nLinux ") && !strings.Contains(out, "\nDarwin ") {
			t.Errorf("%s: printed %s", line, out)
		}
		if strings.Contains(line, "echo hi; exit 3") && out != "hi\n[exit code: 3]\n" {
			t.Errorf("%s: printed %s", line, out)
		}
	}
}

func TestTheExampleHookDenies(t *testing.T) {
	lines := indented(t, "../../examples/deny-commands/README.md")
	t.Cleanup(func() { os.Remove("../../examples/deny-commands/deny-commands") })
	var out string
	for _, line := range lines[:2] {
		out = shell(t, "../..", line)
	}
	if want := lines[2] + "\n"; !strings.HasPrefix(out, want) {
		t.Errorf("printed %q, want %q", out, want)
	}
	allowed := shell(t, "../..", `go run ./cmd/dsh call -c examples/deny-commands/dsh.yaml bash '{"command":"echo fine","description":"Say"}'`)
	if allowed != "fine\n" {
		t.Errorf("an allowed command printed %q", allowed)
	}
}

var (
	yamlBlock  = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
)

func TestThePluginOfThePageServesBelowDsh(t *testing.T) {
	text, err := os.ReadFile("../../docs/writing-a-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	program := BuildProgram(t, "writing-a-plugin.md")
	dir := t.TempDir()
	if err := os.Rename(program, filepath.Join(dir, "line-counter")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "dsh.yaml"), yamlBlock.FindSubmatch(text)[1])
	bin := buildDsh(t)
	var ran []string
	for _, block := range shellBlock.FindAllSubmatch(text, -1) {
		for line := range strings.Lines(string(block[1])) {
			if strings.HasPrefix(line, "dsh ") && strings.Contains(line, " -c dsh.yaml") {
				ran = append(ran, shell(t, dir, line, bin))
			}
		}
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(shell(t, dir, "grep -c '' /etc/hosts")) + " lines\n"; len(hosts) > 0 && !slices.Contains(ran, want) {
		t.Errorf("the commands printed %q, none of them %q", ran, want)
	}
}

// The page begins with commands that follow each other, in a new folder.
func TestTheFiveMinutesOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/writing-a-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	block := string(shellBlock.FindSubmatch(text)[1])
	create, rest, _ := strings.Cut(block, "\n")
	rest, dev, _ := strings.Cut(rest, "\ndsh dev ")
	if !strings.HasPrefix(create, "dsh plugin new ") || !strings.Contains(rest, "\ndsh call ") || dev == "" {
		t.Fatalf("the page begins with\n%s", block)
	}
	// That dsh dev takes over what is saved is shown in test/scaffold.
	out := shell(t, t.TempDir(), "set -e\n"+create+" --sdk "+root+"\n"+rest, buildDsh(t))
	if !strings.HasSuffix(out, " lines\n") {
		t.Errorf("they print\n%s", out)
	}
}

func TestEveryConfigurationStarts(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	bin := buildDsh(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			shell(t, "../..", "dsh check -c "+strings.TrimPrefix(file, "../../"), bin)
			out := shell(t, "../..", `dsh call -c `+strings.TrimPrefix(file, "../../")+` bash '{"command":"pwd","description":"Where"}'`, bin)
			if want, _ := filepath.Abs("../.."); out != want+"\n" {
				t.Errorf("printed %q, want %s", out, want)
			}
		})
	}
}
