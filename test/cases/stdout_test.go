package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/tool"
)

// talkerConfig is the config of a talker's row.
type talkerConfig struct {
	Fail string `json:"fail,omitempty" jsonschema:"While this file exists no instance starts."`
}

// talker is a plugin that prints to stdout: itself, and by a child.
func talker() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{Name: "talker", Provides: []sdk.Seam{tool.Provider}}, talkerConfig{}, func(c *sdk.Context, config talkerConfig) error {
		talk("at the start")
		if _, err := os.Stat(config.Fail); err == nil {
			return errors.New("this talker does not start")
		}
		return tool.Serve(c, tool.New("talk", "Prints to stdout.", func(context.Context, *tool.Call, struct{}) (tool.Result, error) {
			talk("in a call")
			return tool.Text("talked"), nil
		}))
	})
}

func talk(when string) {
	fmt.Println("a print " + when)
	child := exec.Command("echo", "a child "+when)
	child.Stdout = os.NewFile(1, "stdout") // the descriptor, whatever os.Stdout is
	if err := child.Run(); err != nil {
		fmt.Println(err)
	}
}

// Stdout is the editor's. Whatever a plugin prints there is in the log; that every line is a frame is seen by whoever reads it.
func TestWhatAPluginPrintsIsInTheLogAndNotOnStdout(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fail := t.TempDir() + "/fail"
	e := newHome(t, configuration{rows: fmt.Sprintf("  - {id: talker, command: [%q], config: {fail: %q}}\n", self, fail)}).start()
	session := e.session(e.h.work())
	logged := func(count int, text string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%q is in the log %d times", text, count), func() bool { return strings.Count(e.log.String(), text) == count })
	}
	eventually(t, "the tool is there", func() bool { return e.prompt(session, call{"talk", "{}"})[0] == "talked" })
	for _, text := range []string{"a print at the start", "a child at the start", "a print in a call", "a child in a call"} {
		logged(1, text)
	}
	if err := os.WriteFile(fail, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := e.tryReload("talker"); err == nil || !strings.Contains(string(out), "this talker does not start") {
		t.Errorf("the reload: %v, %s", err, out)
	}
	logged(2, "a print at the start")
	logged(2, "a child at the start")
	expect(t, e.prompt(session, call{"talk", "{}"}, run("echo ok")), "talked", "ok\n") // by the instance before
	e.reload("bash")
	expect(t, e.prompt(session, run("echo ok")), "ok\n")
	e.stop() // what it says at its end is checked too
	logged(2, "a print in a call")
}
