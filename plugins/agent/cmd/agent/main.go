// Command agent is the agent plugin as a program of its own.
package main

import (
	"github.com/dsh-go/dsh/plugins/agent"
	"github.com/dsh-go/dsh/sdk"
)

func main() { sdk.Serve(agent.Plugin()) }
