// Command acp is the editor bridge as a program of its own.
package main

import (
	"github.com/dsh-go/dsh/plugins/acp"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(acp.Plugin()) }
