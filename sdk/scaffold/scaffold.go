// Package scaffold writes the beginning of a plugin: a Go module of its own that builds, with a test that passes and a configuration
// that loads it. Its templates are of this version of the SDK.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// Kinds are what a plugin can begin as.
var Kinds = []string{"tool", "executor", "hook", "model"}

// Plugin is what to write.
type Plugin struct {
	// Name is that of the plugin and of its row.
	Name string
	// Kind is one of Kinds.
	Kind string
	// Module is the path of the plugin's module; empty: example.com/ and the name.
	Module string
	// SDK is the checkout of dsh with the SDK that the module uses; empty: the published one of the Version.
	SDK string
	// Version is a released version of dsh. It does not matter with a checkout.
	Version string
}

var (
	validName   = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	validModule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9_][A-Za-z0-9._~-]*)*$`)
	// noModule are names that the go command does not take in the path of a module.
	noModule = regexp.MustCompile(`^(aux|con|nul|prn|(com|lpt)[1-9]|vendor|testdata)$`)
)

// maxName is the longest id of a row.
const maxName = 63

// taken are the ids that a row cannot have, and those of the rows that a template puts beside the plugin's.
var taken = []string{"host", "cli", "bash", "tool-bash", "llm", "agent"}

// Tool is the name of the tool that a plugin of the kind tool has.
func (p Plugin) Tool() string { return strings.ReplaceAll(p.Name, "-", "_") }

// Try is a command line that shows what the plugin does.
func (p Plugin) Try() string {
	switch p.Kind {
	case "tool":
		return "dsh call " + p.Tool() + ` '{"path": "go.mod"}'`
	case "executor":
		return `dsh call bash '{"command": "uname -a", "description": "Name the system"}'`
	case "hook":
		return `dsh call bash '{"command": "sudo ls", "description": "List"}'`
	default:
		return "dsh prompt hello"
	}
}

// check says what a person can do about a plugin that cannot be written.
func (p Plugin) check() error {
	switch {
	case !validName.MatchString(p.Name) || len(p.Name) > maxName:
		return fmt.Errorf("name %q: use lower-case letters, digits and single hyphens between them, a letter first, at most %d", p.Name, maxName)
	case slices.Contains(taken, p.Name):
		return fmt.Errorf("name %q: another row of a configuration has this id; choose another", p.Name)
	case noModule.MatchString(p.Name):
		return fmt.Errorf("name %q: the go command has no module of this name; choose another", p.Name)
	case !slices.Contains(Kinds, p.Kind):
		return fmt.Errorf("kind %q: use %s", p.Kind, strings.Join(Kinds, ", "))
	case !validModule.MatchString(p.Module) || p.Module == sdkModule:
		return fmt.Errorf("module %q: use a path like github.com/you/%s", p.Module, p.Name)
	}
	return nil
}

// Write writes the module into a folder, which must be empty, or not exist and its parent do. It returns the names of the files.
// When it fails nothing is left of it.
func (p Plugin) Write(dir string) (names []string, err error) {
	if p.Module == "" {
		p.Module = "example.com/" + p.Name
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	made, err := makeEmpty(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, name := range names {
				_ = os.Remove(filepath.Join(dir, name))
			}
			if made {
				_ = os.Remove(dir)
			}
			names = nil
		}
	}()
	for _, f := range files {
		w, err := os.OpenFile(filepath.Join(dir, f.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return names, fmt.Errorf("write the plugin: %w", err)
		}
		names = append(names, f.name)
		_, err = w.Write(f.data)
		if err := errors.Join(err, w.Close()); err != nil {
			return names, fmt.Errorf("write the plugin: %w", err)
		}
	}
	return names, nil
}

// makeEmpty makes a folder, unless it is there and empty.
func makeEmpty(dir string) (made bool, err error) {
	err = os.Mkdir(dir, 0o755)
	if !errors.Is(err, fs.ErrExist) {
		if err != nil {
			err = fmt.Errorf("make the folder of the plugin: %w", err)
		}
		return err == nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return false, fmt.Errorf("look into the folder of the plugin: %w", err)
	}
	defer f.Close()
	switch _, err = f.ReadDir(1); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look into the folder of the plugin: %w", err)
	}
	return false, fmt.Errorf("folder %s is not empty, and nothing is overwritten: choose another with --dir", dir)
}

//go:embed templates
var templates embed.FS

type file struct {
	name string
	data []byte
}

// files are the files of the plugin, but for go.sum all of them from templates.
func (p Plugin) files() ([]file, error) {
	needs, sums, err := p.goMod()
	if err != nil {
		return nil, err
	}
	values := struct {
		Plugin
		goMod
	}{p, needs}
	var files []file
	for _, folder := range []string{p.Kind, "common"} {
		all, err := template.ParseFS(templates, "templates/"+folder+"/*.tmpl")
		if err != nil {
			return nil, fmt.Errorf("parse the templates: %w", err)
		}
		for _, t := range all.Templates() {
			var text bytes.Buffer
			if err := t.Execute(&text, values); err != nil {
				return nil, fmt.Errorf("make a file of the plugin: %w", err)
			}
			name := strings.TrimSuffix(path.Base(t.Name()), ".tmpl")
			if name == "gitignore" { // an embedded folder has no files that begin with a dot
				name = "." + name
			}
			files = append(files, file{name, text.Bytes()})
		}
	}
	if sums != nil {
		files = append(files, file{"go.sum", sums})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}
