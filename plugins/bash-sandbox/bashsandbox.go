// Package bashsandbox runs commands on this machine, each confined by the kernel to what its mode allows: the plugin that serves the
// bash seam when the model's commands are not to be trusted with the whole account.
package bashsandbox

import (
	"fmt"
	"time"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/executor"
)

// The modes.
const (
	modeReadOnly       = "read-only"
	modeWorkspaceWrite = "workspace-write"
	modeFull           = "full"
)

// The values of namespaces.
const (
	namespacesRequired = "required"
	namespacesOff      = "off"
)

// Config is the row's `config`.
type Config struct {
	Mode       string   `json:"mode" jsonschema:"read-only: nothing can be written; workspace-write: the workspace and a temporary directory can; full: files are not confined"`
	Network    bool     `json:"network,omitempty" jsonschema:"whether commands reach the network; without it each has a loopback interface of its own"`
	Namespaces string   `json:"namespaces" jsonschema:"required: confine with user and mount namespaces besides Landlock, and refuse to start where the system has none; off: with Landlock alone"`
	AllowWrite []string `json:"allowWrite,omitempty" jsonschema:"further directories and files that can be written in workspace-write mode; ~/ is the home directory"`
	DenyRead   []string `json:"denyRead,omitempty" jsonschema:"further directories and files that cannot be read; ~/ is the home directory"`
	AllowRead  []string `json:"allowRead,omitempty" jsonschema:"paths that can be read although they are among those denied by default; ~/ is the home directory"`

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
	Mode:         modeWorkspaceWrite,
	Namespaces:   namespacesRequired,
	Shell:        "bash",
	TimeoutMs:    120_000,
	MaxTimeoutMs: 600_000,
	KillGraceMs:  3000, OutputLimitBytes: 64_000,
	SpillLimitBytes: 64 << 20,
}

// Plugin returns the plugin.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{
		Name:     "bash-sandbox",
		Version:  "1.0.0",
		Provides: []sdk.Seam{bash.Seam},
		Injects:  executor.Injects(),
	}, defaults, activate)
}

// activate refuses to serve what it cannot confine.
func activate(c *sdk.Context, config Config) error {
	if err := config.check(); err != nil {
		return err
	}
	policy, err := newPolicy(c, &config)
	if err != nil {
		return err
	}
	return executor.Serve(c, executor.Options{
		Shell:       config.Shell,
		Cwd:         config.Cwd,
		Timeout:     time.Duration(config.TimeoutMs) * time.Millisecond,
		MaxTimeout:  time.Duration(config.MaxTimeoutMs) * time.Millisecond,
		KillGrace:   time.Duration(config.KillGraceMs) * time.Millisecond,
		OutputLimit: config.OutputLimitBytes,
		SpillLimit:  config.SpillLimitBytes,
		KeepEnv:     config.KeepEnv,
		Policy:      policy,
	})
}

func (c *Config) check() error {
	switch c.Mode {
	case modeReadOnly, modeWorkspaceWrite, modeFull:
	default:
		return fmt.Errorf("config: mode %q: it must be %q, %q or %q", c.Mode, modeReadOnly, modeWorkspaceWrite, modeFull)
	}
	switch c.Namespaces {
	case namespacesRequired:
	case namespacesOff:
		if !c.Network {
			return fmt.Errorf("config: namespaces %q: without namespaces commands cannot be kept from the network; set network: true "+
				"to allow it, or namespaces: %s", namespacesOff, namespacesRequired)
		}
	default:
		return fmt.Errorf("config: namespaces %q: it must be %q or %q", c.Namespaces, namespacesRequired, namespacesOff)
	}
	return nil
}

// Support is what a system gives to the sandbox.
type Support struct {
	Landlock      int   // the version that the kernel has
	LeastLandlock int   // the one that is needed to confine files
	LandlockErr   error // why there is none
	// NamespacesErr is why user, mount and network namespaces are refused, and AllowNamespaces what a person can do about it.
	NamespacesErr   error
	AllowNamespaces string
}
