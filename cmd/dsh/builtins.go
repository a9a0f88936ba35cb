package main

import (
	"maps"
	"os"
	"slices"

	"github.com/dsh-go/dsh/plugins/acp"
	"github.com/dsh-go/dsh/plugins/agent"
	bashlocal "github.com/dsh-go/dsh/plugins/bash-local"
	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
	llmopenai "github.com/dsh-go/dsh/plugins/llm-openai"
	llmshell "github.com/dsh-go/dsh/plugins/llm-shell"
	"github.com/dsh-go/dsh/plugins/permissions"
	toolbash "github.com/dsh-go/dsh/plugins/tool-bash"
	"github.com/dsh-go/dsh/sdk"
)

// serveBuiltin is the first argument of a process of this program that serves the built-in plugin named by the second.
const serveBuiltin = "serve-plugin"

// builtins are the plugins linked into this program.
var builtins = map[string]func() *sdk.Plugin{
	"acp":          acp.Plugin,
	"agent":        agent.Plugin,
	"bash-local":   bashlocal.Plugin,
	"bash-sandbox": bashsandbox.Plugin,
	"llm-openai":   llmopenai.Plugin,
	"llm-shell":    llmshell.Plugin,
	"permissions":  permissions.Plugin,
	"tool-bash":    toolbash.Plugin,
}

func builtinNames() []string { return slices.Sorted(maps.Keys(builtins)) }

// builtinArgv is the command line that serves a built-in plugin.
func builtinArgv(name string) ([]string, bool) {
	self, err := os.Executable()
	_, ok := builtins[name]
	return []string{self, serveBuiltin, name}, ok && err == nil
}
