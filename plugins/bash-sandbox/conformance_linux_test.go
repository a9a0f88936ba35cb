package bashsandbox_test

import (
	"testing"

	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
	"github.com/dsh-go/dsh/sdk/plugintest/executortest"
)

func TestExecutor(t *testing.T) {
	executortest.Run(t, executortest.Executor{Plugin: bashsandbox.Plugin, NeedsDirectory: true})
}
