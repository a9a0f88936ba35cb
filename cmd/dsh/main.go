// Command dsh is a plugin host for agent tools.
package main

import (
	"os"

	"github.com/dsh-go/dsh/sdk"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == serveBuiltin {
		if plugin, ok := builtins[os.Args[2]]; ok {
			sdk.Serve(plugin())
		}
	}
	sdk.Hide() // the host's environment has the credentials that its plugins do not get
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
