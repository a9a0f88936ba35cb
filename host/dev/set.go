package dev

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Set says which files matter. All paths are absolute.
type Set struct {
	// Files matter whether they exist or not.
	Files []string
	// Trees are places where files that match matter, also those that are not there yet.
	Trees []Tree
}

// and is the union of two sets.
func (s Set) and(other Set) Set {
	return Set{append(slices.Clip(s.Files), other.Files...), append(slices.Clip(s.Trees), other.Trees...)}
}

// Tree is the files below a directory that match. Both functions get paths relative to it, with slashes.
type Tree struct {
	dir string
	// match tells whether a file matters.
	match func(file string) bool
	// descend tells whether a file that matters may be in a directory or below.
	descend func(dir string) bool
}

// Glob is the tree of a pattern: `*`, `?`, `[a-z]`, `{ts,tsx}`, and `**` for any number of directories. Neither `*` nor `**` matches a
// name that begins with a dot, and `**` no node_modules; a pattern that means them names them. Relative patterns begin at dir.
func Glob(dir, pattern string) (Tree, error) {
	if !doublestar.ValidatePattern(pattern) {
		return Tree{}, fmt.Errorf("watch pattern %q is malformed", pattern)
	}
	base, pattern := doublestar.SplitPattern(path.Clean(pattern))
	if !filepath.IsAbs(base) {
		base = filepath.Join(dir, base)
	}
	if info, err := os.Stat(filepath.Join(base, pattern)); err == nil && info.IsDir() {
		return Tree{}, fmt.Errorf("watch pattern %q is a directory; for all files below it write %s/**", pattern, pattern)
	}
	g := glob{whole: pattern}
	if !strings.Contains(pattern, "{") {
		g.segments = strings.Split(pattern, "/")
	}
	return Tree{base, g.match, g.descend}, nil
}

type glob struct {
	whole    string
	segments []string // nil: alternatives may hold slashes
}

func (g glob) match(file string) bool {
	if strings.HasPrefix(path.Base(file), ".") && !strings.HasPrefix(path.Base(g.whole), ".") {
		return false
	}
	return doublestar.MatchUnvalidated(g.whole, file)
}

func (g glob) descend(dir string) bool {
	names := strings.Split(dir, "/")
	if g.segments == nil {
		return !slices.ContainsFunc(names, unnamed)
	}
	for i, name := range names {
		switch {
		case i == len(g.segments)-1 && g.segments[i] != "**":
			return false
		case g.segments[i] == "**":
			return !slices.ContainsFunc(names[i:], unnamed)
		case unnamed(name) && g.segments[i] != name && !strings.HasPrefix(g.segments[i], "."):
			return false
		case !doublestar.MatchUnvalidated(g.segments[i], name):
			return false
		}
	}
	return true
}

// unnamed tells whether a wildcard passes by a directory.
func unnamed(dir string) bool { return strings.HasPrefix(dir, ".") || dir == "node_modules" }

// globs is the set of a source's patterns.
func globs(source Source) (Set, error) {
	var set Set
	for _, pattern := range source.Watch {
		tree, err := Glob(source.Dir, pattern)
		if err != nil {
			return Set{}, err
		}
		set.Trees = append(set.Trees, tree)
	}
	return set, nil
}
