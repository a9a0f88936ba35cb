package docs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-plugin"

	"github.com/dsh-go/dsh/sdk/api"
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

func TestThePageOnOtherLanguagesNamesTheHandshake(t *testing.T) {
	text, err := os.ReadFile("../../docs/plugins-in-other-languages.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"| `" + api.Handshake.MagicCookieKey + "` | `" + api.Handshake.MagicCookieValue + "`;", api.EnvHostPID, api.EnvLivenessFD,
		plugin.EnvUnixSocketDir, api.MetadataCaller, api.MetadataClaim,
		fmt.Sprintf("\n%d|%d|unix|/", plugin.CoreProtocolVersion, api.Handshake.ProtocolVersion),
	} {
		if !strings.Contains(string(text), name) {
			t.Errorf("the page lacks %q", name)
		}
	}
}
