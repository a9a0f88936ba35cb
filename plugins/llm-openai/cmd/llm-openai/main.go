// Command llm-openai is the plugin llm-openai as a program of its own.
package main

import (
	"github.com/dsh-go/dsh/plugins/llm-openai"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(llmopenai.Plugin()) }
