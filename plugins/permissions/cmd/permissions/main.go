// Command permissions serves the plugin of this name.
package main

import (
	"github.com/dsh-go/dsh/plugins/permissions"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(permissions.Plugin()) }
