package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// Seam names a capability and the gRPC service behind it. Each seam package under sdk has one as a variable.
type Seam struct {
	Name    string // e.g. "bash"
	Service string // e.g. "dsh.bash.v1.Bash"
	// Contribution is true for a seam that many plugins may serve at once.
	Contribution bool
}

// Required injects the seam: the plugin is active only while a provider is.
func (s Seam) Required() Injection { return Injection{Seam: s} }

// Optional injects the seam without waiting for it: a call fails as unavailable while there is no provider.
func (s Seam) Optional() Injection { return Injection{Seam: s, Optional: true} }

// Injection is a seam that a plugin calls.
type Injection struct {
	Seam     Seam
	Optional bool
}

// Manifest says what a plugin is, what it serves and what it needs. A plugin can call only what it injects.
type Manifest struct {
	Name     string
	Version  string
	Provides []Seam
	Injects  []Injection
}

// Plugin is a manifest and an activation. Make one with [Define] and hand it to [Serve].
type Plugin struct {
	manifest *pluginv1.Manifest
	activate func(c *Context, config string) error
	err      error // found while it was defined, reported by Describe
}

// Define makes a plugin. C is the struct of the row's `config`: its JSON tags name the keys, the JSON schema the host checks
// configurations with is derived from it, and what a configuration leaves out keeps its value from defaults. A field is
// required when its tag has no omitempty and its default is the zero value; a `jsonschema` tag describes it.
//
// activate registers what the plugin serves and starts what it runs; when it returns nil the instance is active. When it
// returns an error, the effects registered so far are undone and the row fails with the error.
func Define[C any](m Manifest, defaults C, activate func(*Context, C) error) *Plugin {
	p := &Plugin{manifest: &pluginv1.Manifest{Name: m.Name, Version: m.Version}}
	for _, s := range m.Provides {
		p.manifest.Provides = append(p.manifest.Provides,
			&pluginv1.Provide{Seam: s.Name, Service: s.Service, Contribution: s.Contribution})
	}
	for _, i := range m.Injects {
		p.manifest.Injects = append(p.manifest.Injects,
			&pluginv1.Inject{Seam: i.Seam.Name, Service: i.Seam.Service, Optional: i.Optional})
	}
	p.activate = func(c *Context, config string) error {
		value := defaults
		d := json.NewDecoder(bytes.NewReader([]byte(config)))
		d.DisallowUnknownFields()
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("config: %w", err)
		}
		return activate(c, value)
	}
	p.manifest.ConfigSchema, p.err = configSchema(defaults)
	return p
}

// NoConfig is the configuration of a plugin that takes none.
type NoConfig struct{}

// Name is the plugin's name.
func (p *Plugin) Name() string { return p.manifest.GetName() }
