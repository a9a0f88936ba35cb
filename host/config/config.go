// Package config turns configuration files into rows: strict YAML with line numbers, includes, ${ENV}, and the check of a
// row's config against the schema of its plugin.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Config is what one set of files says.
type Config struct {
	// File is the file the configuration was loaded from, for messages.
	File string
	// Files are all files that were read, includes too.
	Files []string
	Rows  []Row
	// ToolTimeout ends a tool call that runs longer.
	ToolTimeout time.Duration
	// Probation is how long a new instance must live before the one it replaced is let go.
	Probation time.Duration
}

// defaultToolTimeout is longer than the longest time a command may ask for by default, ten minutes.
const defaultToolTimeout = 11 * time.Minute

const defaultProbation = 3 * time.Second

// Row is one entry of the configuration. Exactly one of Plugin, Source and Command is set.
type Row struct {
	ID string
	// Plugin is the name of a built-in.
	Plugin string
	// Source is the absolute folder of a Go main package that the host builds.
	Source string
	// Command starts a plugin program; a relative path with a slash is relative to the file.
	Command []string
	// Watch are patterns of the files that the program of Command is made of, relative to the file; Build is what makes it.
	Watch, Build []string
	// Env is added to the environment of the row's process.
	Env      map[string]string
	Disabled bool
	// Where the entry begins.
	Where Position

	config *value // nil: none
}

// Config is the row's `config` as a JSON object.
func (r *Row) Config() string {
	if r.config == nil {
		return "{}"
	}
	text, err := json.Marshal(r.config.plain())
	if err != nil {
		panic(fmt.Sprintf("config of row %q: %v", r.ID, err)) // values that YAML gives always fit JSON
	}
	return string(text)
}

// Position is a place in a file.
type Position struct {
	File string
	Line int
}

func (p Position) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Error is a fault of a configuration, at its place.
type Error struct {
	Where   Position
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Where, e.Message) }

// Load reads a configuration file and what it includes. lookup finds environment variables. The error joins all that was found.
func Load(file string, lookup func(string) (string, bool)) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(file, data, lookup)
}

// Parse is Load for text that is at hand. name stands for the file in messages, and includes are relative to its folder.
func Parse(name string, data []byte, lookup func(string) (string, bool)) (*Config, error) {
	l := &loader{lookup: lookup, toolTimeout: defaultToolTimeout, probation: defaultProbation}
	l.file(name, data)
	l.checkIDs()
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	return &Config{File: name, Files: l.files, Rows: l.rows, ToolTimeout: l.toolTimeout, Probation: l.probation}, nil
}

type loader struct {
	lookup func(string) (string, bool)
	open   []string // the files being read, outermost first
	files  []string // all that were read
	rows   []Row
	errs   []error

	toolTimeout time.Duration
	probation   time.Duration
}

func (l *loader) failf(where Position, format string, args ...any) {
	l.errs = append(l.errs, &Error{where, fmt.Sprintf(format, args...)})
}

func (l *loader) file(name string, data []byte) {
	if slices.Contains(l.open, filepath.Clean(name)) {
		l.failf(Position{name, 1}, "the file includes itself")
		return
	}
	l.open = append(l.open, filepath.Clean(name))
	l.files = append(l.files, name)
	defer func() { l.open = l.open[:len(l.open)-1] }()

	root, err := parse(name, data)
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	if root == nil {
		l.failf(Position{name, 1}, "the file is empty; a configuration has the key plugins")
		return
	}
	fields := l.object(root, "", "include", "plugins", "tools", "reload")
	if fields["include"] == nil && fields["plugins"] == nil && root.kind == mapping && len(root.entries) == 0 {
		l.failf(root.where, "a configuration has the key plugins")
	}
	if include := fields["include"]; include != nil {
		for _, item := range l.strings(include, "include") {
			l.include(name, item)
		}
	}
	if tools := fields["tools"]; tools != nil {
		l.milliseconds(tools, "tools", "timeoutMs", 1, &l.toolTimeout)
	}
	if reload := fields["reload"]; reload != nil {
		l.milliseconds(reload, "reload", "probationMs", 0, &l.probation)
	}
	if plugins := fields["plugins"]; plugins != nil {
		if plugins.kind != sequence {
			l.failf(plugins.where, "plugins must be a list of rows, not %s", plugins.kind)
			return
		}
		for _, item := range plugins.items {
			l.row(item)
		}
	}
}

// milliseconds reads the only key of an object.
func (l *loader) milliseconds(v *value, object, key string, least int64, into *time.Duration) {
	field := l.object(v, object, key)[key]
	if field == nil {
		return
	}
	ms, err := strconv.ParseInt(fmt.Sprint(field.scalar), 10, 64)
	if field.kind != number || err != nil || ms < least {
		l.failf(field.where, "%s.%s must be an integer, at least %d", object, key, least)
		return
	}
	*into = time.Duration(ms) * time.Millisecond
}

func (l *loader) include(from string, item *value) {
	file := item.text
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(from), file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		l.failf(item.where, "include: %v", err)
		return
	}
	l.file(file, data)
}

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

func (l *loader) row(v *value) {
	fields := l.object(v, "row", "id", "plugin", "source", "command", "watch", "build", "config", "env", "disabled")
	if fields == nil {
		return
	}
	row := Row{Where: v.where}
	if id := fields["id"]; id == nil {
		l.failf(v.where, "a row needs an id")
	} else if row.ID = l.string(id, "id"); row.ID != "" && !validID.MatchString(row.ID) {
		l.failf(id.where, "id %q: use lower-case letters, digits, dots, hyphens and underscores, at most 63", row.ID)
	} else if row.ID == "host" || row.ID == "cli" {
		l.failf(id.where, "id %q: it is what callers are told of calls that no plugin makes; choose another", row.ID)
	}
	if plugin := fields["plugin"]; plugin != nil {
		row.Plugin = l.string(plugin, "plugin")
	}
	if command := fields["command"]; command != nil {
		for _, word := range l.strings(command, "command") {
			row.Command = append(row.Command, word.text)
		}
		if len(row.Command) == 0 {
			l.failf(command.where, "command must name a program")
		} else if program := row.Command[0]; filepath.Base(program) != program && !filepath.IsAbs(program) {
			row.Command[0] = l.path(command, program) // a bare name would be looked up in PATH
		}
	}
	l.program(&row, fields)
	if disabled := fields["disabled"]; disabled != nil {
		var ok bool
		if row.Disabled, ok = disabled.scalar.(bool); !ok {
			l.failf(disabled.where, "disabled must be true or false, not %s", disabled.kind)
		}
	}
	if env := fields["env"]; env != nil {
		row.Env = map[string]string{}
		if env.kind != mapping {
			l.failf(env.where, "env must map names to strings, not %s", env.kind)
		}
		l.expand(env)
		for _, e := range env.entries {
			row.Env[e.key] = l.string(e.value, "env "+e.key)
		}
	}
	if config := fields["config"]; config != nil && config.kind != null {
		if config.kind != mapping {
			l.failf(config.where, "config must be a mapping, not %s", config.kind)
		} else {
			l.expand(config)
			row.config = config
		}
	}
	l.rows = append(l.rows, row)
}

// program reads what a row runs, besides its command.
func (l *loader) program(row *Row, fields map[string]*value) {
	given := 0
	for _, key := range []string{"plugin", "source", "command"} {
		if fields[key] != nil {
			given++
		}
	}
	if given != 1 {
		l.failf(row.Where, "row %q needs one of plugin, source and command", row.ID)
	}
	if source := fields["source"]; source != nil {
		row.Source = l.path(source, l.string(source, "source"))
	}
	for _, key := range []string{"watch", "build"} {
		list := fields[key]
		if list == nil {
			continue
		}
		if fields["command"] == nil {
			l.failf(list.where, "%s goes with command; the host knows what it has to watch and to build for plugin and source", key)
		}
		var words []string
		for _, word := range l.strings(list, key) {
			words = append(words, word.text)
		}
		if key == "watch" {
			row.Watch = words
		} else {
			row.Build = words
		}
	}
}

// path makes a path of a configuration absolute: it is relative to the file it stands in.
func (l *loader) path(v *value, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(v.where.File), path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		l.failf(v.where, "%s: %v", path, err)
	}
	return abs
}

// object checks that v is a mapping of known keys and returns its fields; nil when it is no mapping.
func (l *loader) object(v *value, what string, known ...string) map[string]*value {
	if v.kind != mapping {
		if what == "" {
			what = "the file"
		}
		l.failf(v.where, "%s must be a mapping, not %s", what, v.kind)
		return nil
	}
	fields := map[string]*value{}
	for _, e := range v.entries {
		if !slices.Contains(known, e.key) {
			l.failf(e.where, "unknown key %q%s", e.key, Suggest(e.key, known))
			continue
		}
		fields[e.key] = e.value
	}
	return fields
}

func (l *loader) string(v *value, what string) string {
	if v.kind != text {
		l.failf(v.where, "%s must be a string, not %s", what, v.kind)
		return ""
	}
	return v.text
}

func (l *loader) strings(v *value, what string) []*value {
	if v.kind != sequence {
		l.failf(v.where, "%s must be a list of strings, not %s", what, v.kind)
		return nil
	}
	var items []*value
	for _, item := range v.items {
		if item.kind != text {
			l.failf(item.where, "%s must be a list of strings; this is %s", what, item.kind)
			continue
		}
		items = append(items, item)
	}
	return items
}

// expand replaces ${…} in all string values below v.
func (l *loader) expand(v *value) {
	for _, e := range v.entries {
		l.expand(e.value)
	}
	for _, item := range v.items {
		l.expand(item)
	}
	if v.kind != text {
		return
	}
	expanded, err := expand(v.text, l.lookup)
	if err != nil {
		l.failf(v.where, "%v", err)
	}
	v.varies = v.varies || expanded != v.text
	v.text = expanded
}

func (l *loader) checkIDs() {
	seen := map[string]Position{}
	for _, row := range l.rows {
		if first, ok := seen[row.ID]; ok && row.ID != "" {
			l.failf(row.Where, "row id %q is taken already, at %s", row.ID, first)
			continue
		}
		seen[row.ID] = row.Where
	}
}
