// Command tool-bash is the plugin tool-bash as a program of its own.
package main

import (
	"github.com/dsh-go/dsh/plugins/tool-bash"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(toolbash.Plugin()) }
