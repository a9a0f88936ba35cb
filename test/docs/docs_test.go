package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestThePluginOfThePageBuildsAndItsTestPasses(t *testing.T) {
	dir := WriteModule(t, "writing-a-plugin.md")
	goTool(t, dir, "vet", ".")
	goTool(t, dir, "test", ".")
}

func TestThePluginOfThePageSaysHowToRunIt(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), BuildProgram(t, "writing-a-plugin.md")).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("started by hand it ended with %v, want exit status 2", err)
	}
	if want := "line-counter is a plugin of dsh and runs only below it"; !strings.Contains(string(out), want) {
		t.Errorf("it said %q, want %q", out, want)
	}
}

func TestThePluginOfThePageFitsOnAPage(t *testing.T) {
	const page = 85
	program, err := os.ReadFile(filepath.Join(WriteModule(t, "writing-a-plugin.md"), "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(program), "\n"); lines > page {
		t.Errorf("main.go has %d lines, more than %d", lines, page)
	}
}

func TestTheProgramsOfThePageAreFormatted(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "gofmt", "-l", WriteModule(t, "writing-a-plugin.md")).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("gofmt would change %s (%v)", out, err)
	}
}
