// Command llm-shell is the plugin llm-shell as a program of its own.
package main

import (
	"github.com/dsh-go/dsh/plugins/llm-shell"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(llmshell.Plugin()) }
