// Command bash-local is the plugin bash-local as a program of its own.
package main

import (
	"github.com/dsh-go/dsh/plugins/bash-local"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(bashlocal.Plugin()) }
