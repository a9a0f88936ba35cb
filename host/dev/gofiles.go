package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// goFiles is the set of files that the build of a Go package depends on: those of every package outside the module cache and the
// standard library, what they embed, and the files of their modules. It needs no package to be without errors.
func goFiles(ctx context.Context, source Source) (Set, error) {
	out, _, err := run(ctx, source.Dir, source.Env, "go", "env", "-json", "GOMOD", "GOWORK", "GOMODCACHE")
	if err != nil {
		return nearestModule(source.Dir), err
	}
	var env struct{ GOMOD, GOWORK, GOMODCACHE string }
	if err := json.Unmarshal(out, &env); err != nil {
		return nearestModule(source.Dir), err
	}
	out, _, err = run(ctx, source.Dir, source.Env, "go", "list", "-deps", "-e",
		"-json=Dir,ImportPath,Standard,Module,EmbedPatterns,Error", ".")
	list := goList{cache: env.GOMODCACHE, modules: map[string]string{}}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if decodeErr := decoder.Decode(&p); decodeErr != nil {
			if !errors.Is(decodeErr, io.EOF) {
				err = errors.Join(err, decodeErr)
			}
			break
		}
		list.add(p)
	}
	list.addMissing()
	if env.GOWORK != "" && env.GOWORK != "off" {
		list.set.Files = append(list.set.Files, env.GOWORK, env.GOWORK+".sum")
	}
	set := list.set.and(nearestModule(source.Dir))
	return set, err
}

type goPackage struct {
	Dir           string
	ImportPath    string
	Standard      bool
	Module        *struct{ Path, Dir, GoMod string }
	EmbedPatterns []string
	Error         *struct{}
}

// goList gathers a set from the packages that go list prints.
type goList struct {
	cache   string            // of modules
	modules map[string]string // the directories of the local ones
	missing []string          // import paths
	set     Set
}

func (l *goList) add(p goPackage) {
	switch {
	case p.Standard || p.Dir != "" && inside(l.cache, p.Dir):
		return
	case p.Dir == "":
		l.missing = append(l.missing, p.ImportPath)
		return
	}
	l.set.Trees = append(l.set.Trees, goTree(p.Dir))
	for _, pattern := range p.EmbedPatterns {
		l.set.Trees = append(l.set.Trees, embedTree(p.Dir, pattern))
	}
	if m := p.Module; m != nil && m.Dir != "" && !inside(l.cache, m.Dir) {
		l.modules[m.Path] = m.Dir
		l.set.Files = append(l.set.Files, moduleFiles(m.Dir)...)
	}
}

// addMissing adds the places where packages that are imported but do not exist would be.
func (l *goList) addMissing() {
	for _, importPath := range l.missing {
		for module, dir := range l.modules {
			if rest, ok := strings.CutPrefix(importPath, module+"/"); ok {
				l.set.Trees = append(l.set.Trees, goTree(filepath.Join(dir, filepath.FromSlash(rest))))
			}
		}
	}
}

func inside(root, path string) bool {
	return root != "" && strings.HasPrefix(path, root+string(filepath.Separator))
}

func moduleFiles(dir string) []string {
	return []string{
		filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"), filepath.Join(dir, "go.work"),
		filepath.Join(dir, "vendor", "modules.txt"),
	}
}

// nearestModule is what is known of a package without asking go.
func nearestModule(dir string) Set {
	set := Set{Trees: []Tree{goTree(dir)}}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			set.Files = moduleFiles(at)
			return set
		}
		if at == filepath.Dir(at) {
			set.Files = moduleFiles(dir)
			return set
		}
	}
}

// goExtensions are those of the files that go build takes.
var goExtensions = map[string]bool{
	".go": true, ".c": true, ".cc": true, ".cpp": true, ".cxx": true, ".m": true, ".h": true, ".hh": true, ".hpp": true, ".hxx": true,
	".f": true, ".F": true, ".for": true, ".f90": true, ".s": true, ".S": true, ".sx": true, ".swig": true, ".swigcxx": true, ".syso": true,
}

// goTree is the files of a Go package. Those that build constraints leave out are among them: it is their first lines that say so.
func goTree(dir string) Tree {
	return Tree{dir, "go", func(file string) bool {
		return !strings.Contains(file, "/") && goExtensions[path.Ext(file)] && !strings.HasSuffix(file, "_test.go") && !hidden(file)
	}, func(string) bool { return false }}
}

// hidden tells whether Go ignores a name.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// embedTree is the files that a go:embed pattern takes: those that match, and those in directories that match.
func embedTree(dir, pattern string) Tree {
	kind := "embed " + pattern
	pattern, all := strings.CutPrefix(pattern, "all:")
	segments := strings.Split(pattern, "/")
	fits := func(names []string) bool {
		for i, name := range names {
			if i >= len(segments) {
				if !all && hidden(name) {
					return false
				}
			} else if ok, err := path.Match(segments[i], name); !ok || err != nil {
				return false
			}
		}
		return true
	}
	if pattern == "." {
		segments = nil
	}
	return Tree{dir, kind, func(file string) bool {
		names := strings.Split(file, "/")
		return len(names) >= len(segments) && fits(names)
	}, func(dir string) bool { return fits(strings.Split(dir, "/")) }}
}
