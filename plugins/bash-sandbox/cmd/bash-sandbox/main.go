// Command bash-sandbox is the plugin bash-sandbox as a program of its own.
package main

import (
	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(bashsandbox.Plugin()) }
