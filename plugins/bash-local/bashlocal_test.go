package bashlocal_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	bashlocal "github.com/dsh-go/dsh/plugins/bash-local"
	"github.com/dsh-go/dsh/sdk/plugintest"
	"github.com/dsh-go/dsh/sdk/plugintest/executortest"
)

func TestMain(m *testing.M) {
	plugintest.Main(bashlocal.Plugin())
	goleak.VerifyTestMain(m)
}

func TestExecutor(t *testing.T) { executortest.Run(t, executortest.Executor{Plugin: bashlocal.Plugin}) }

func TestBadConfigFailsTheActivation(t *testing.T) {
	for want, config := range map[string]map[string]any{
		"must be an absolute path": {"cwd": "relative"},
		"nonsense":                 {"nonsense": 1},
	} {
		if _, err := plugintest.Activate(t, bashlocal.Plugin(), plugintest.Options{Config: config}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
