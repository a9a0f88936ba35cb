package bashsandbox

import (
	"context"
	"errors"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/executor"
)

// newPolicy refuses: nothing is ever run unconfined in its place.
func newPolicy(*sdk.Context, *Config) (executor.Policy, error) {
	return nil, errors.New("commands cannot be confined on macOS: the sandbox is made of Landlock and namespaces, which only Linux has; " +
		"use the plugin bash-local where commands may do all that you may")
}

// Examine says that there is neither Landlock nor namespaces.
func Examine(context.Context) Support {
	return Support{LandlockErr: errors.ErrUnsupported, NamespacesErr: errors.ErrUnsupported}
}
