package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/dsh-go/dsh/configs"
	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/config"
	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/host/numbers"
	"github.com/dsh-go/dsh/sdk/api/environ"
)

// options are the flags that all commands share.
type options struct {
	config   string
	logLevel string
	// logFormat is "text" or "json".
	logFormat string
	attach    string // the control socket of a running host
}

// host makes the options of a host that logs to stderr, from defaultLevel on unless a flag says otherwise.
func (o *options) host(stderr io.Writer, defaultLevel hclog.Level) (host.Options, error) {
	level := defaultLevel
	if o.logLevel != "" {
		if level = hclog.LevelFromString(o.logLevel); level == hclog.NoLevel {
			return host.Options{}, fmt.Errorf("--log-level %q: use trace, debug, info, warn or error", o.logLevel)
		}
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		return host.Options{}, fmt.Errorf("--log-format %q: use text or json", o.logFormat)
	}
	c, err := o.load()
	if err != nil {
		return host.Options{}, err
	}
	log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "dsh", Level: level, Output: stderr, JSONFormat: o.logFormat == "json"})
	logs := control.NewLogs()
	log.RegisterSink(logs)
	return host.Options{
		Config: c, Load: o.load, Builtin: builtinArgv, Builtins: builtinNames(), Env: os.Environ(),
		Log: log, Control: logs, Numbers: claimNumbers(log),
	}, nil
}

// claimNumbers makes the counters that all hosts of this user share. Without them numbers come again after a restart, which is better
// than no host.
func claimNumbers(log hclog.Logger) *numbers.Counters {
	state, err := environ.StateHome()
	if err == nil {
		var n *numbers.Counters
		if n, err = numbers.New(filepath.Join(state, "dsh", "claims")); err == nil {
			return n
		}
	}
	log.Warn("the ids of background tasks begin anew with this host: a session that is loaded again may meet one twice", "error", err)
	return nil
}

// load finds the configuration.
func (o *options) load() (*config.Config, error) {
	if o.config != "" {
		return config.Load(o.config, os.LookupEnv)
	}
	candidates := []string{"dsh.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "dsh", "dsh.yaml"))
	}
	for _, file := range candidates {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return config.Load(file, os.LookupEnv)
		}
	}
	c, err := config.Parse("built-in acp.yaml", configs.Default, os.LookupEnv)
	if err == nil {
		c.Files = nil // there is none to watch
	}
	return c, err
}
