// Package bashlocal runs commands on this machine, as the user that the host runs as and without confinement: the plugin that
// serves the bash seam when nothing else is wanted.
package bashlocal

import (
	"time"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/executor"
)

// Config is the row's `config`.
type Config struct {
	Shell            string   `json:"shell" jsonschema:"the bash to run: a path, or a name to look up in PATH"`
	Cwd              string   `json:"cwd,omitempty" jsonschema:"the working directory of commands that have neither a session nor one of their own; default: the host's"`
	TimeoutMs        int64    `json:"timeoutMs" jsonschema:"the time limit of a foreground command that names none, in milliseconds"`
	MaxTimeoutMs     int64    `json:"maxTimeoutMs" jsonschema:"the largest time limit, in milliseconds; what asks for more gets this"`
	KillGraceMs      int64    `json:"killGraceMs" jsonschema:"the time between SIGTERM and SIGKILL, in milliseconds"`
	OutputLimitBytes int      `json:"outputLimitBytes" jsonschema:"how much of each stream is kept in memory; the whole goes to a file when there is more"`
	SpillLimitBytes  int64    `json:"spillLimitBytes" jsonschema:"the largest such file"`
	KeepEnv          []string `json:"keepEnv,omitempty" jsonschema:"environment variables that commands inherit although their names look like secrets"`
}

var defaults = Config{
	Shell:        "bash",
	TimeoutMs:    120_000,
	MaxTimeoutMs: 600_000,
	KillGraceMs:  3000, OutputLimitBytes: 64_000,
	SpillLimitBytes: 64 << 20,
}

// Plugin returns the plugin.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{
		Name:     "bash-local",
		Version:  "1.0.0",
		Provides: []sdk.Seam{bash.Seam},
		Injects:  executor.Injects(),
	}, defaults, activate)
}

func activate(c *sdk.Context, config Config) error {
	return executor.Serve(c, executor.Options{
		Shell:       config.Shell,
		Cwd:         config.Cwd,
		Timeout:     time.Duration(config.TimeoutMs) * time.Millisecond,
		MaxTimeout:  time.Duration(config.MaxTimeoutMs) * time.Millisecond,
		KillGrace:   time.Duration(config.KillGraceMs) * time.Millisecond,
		OutputLimit: config.OutputLimitBytes,
		SpillLimit:  config.SpillLimitBytes,
		KeepEnv:     config.KeepEnv,
	})
}
