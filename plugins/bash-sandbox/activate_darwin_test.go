package bashsandbox_test

import (
	"strings"
	"testing"

	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func TestActivationFailsWithoutLinux(t *testing.T) {
	_, err := plugintest.Activate(t, bashsandbox.Plugin(), plugintest.Options{})
	if err == nil || !strings.Contains(err.Error(), "commands cannot be confined on macOS") {
		t.Errorf("got %v", err)
	}
}
