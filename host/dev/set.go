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
	union := Set{slices.Concat(s.Files, other.Files), slices.Concat(s.Trees, other.Trees)}
	slices.Sort(union.Files)
	union.Files = slices.Compact(union.Files)
	slices.SortStableFunc(union.Trees, func(a, b Tree) int { return strings.Compare(a.key(), b.key()) })
	union.Trees = slices.CompactFunc(union.Trees, func(a, b Tree) bool { return a.key() == b.key() })
	return union
}

// covers tells whether a path matters.
func (s Set) covers(file string) bool {
	return slices.Contains(s.Files, file) || slices.ContainsFunc(s.Trees, func(t Tree) bool {
		relative, err := filepath.Rel(t.dir, file)
		return err == nil && filepath.IsLocal(relative) && t.match(filepath.ToSlash(relative))
	})
}

// Tree is the files below a directory that match. Both functions get paths relative to it, with slashes.
type Tree struct {
	dir  string
	kind string // trees of one kind and directory are the same
	// match tells whether a file matters.
	match func(file string) bool
	// descend tells whether a file that matters may be in a directory or below.
	descend func(dir string) bool
}

func (t Tree) key() string { return t.dir + "\x00" + t.kind }

// Glob is the tree of a pattern: `*`, `?`, `[a-z]`, `{ts,tsx}`, and `**` for any number of directories. Neither `*` nor `**` matches a
// name that begins with a dot, and `**` no node_modules; a pattern that means them names them. Relative patterns begin at dir.
func Glob(dir, pattern string) (Tree, error) {
	if !doublestar.ValidatePattern(pattern) {
		return Tree{}, fmt.Errorf("watch pattern %q is malformed", pattern)
	}
	base, rest := doublestar.SplitPattern(path.Clean(pattern))
	if !filepath.IsAbs(base) {
		base = filepath.Join(dir, base)
	}
	if info, err := os.Stat(filepath.Join(base, rest)); err == nil && info.IsDir() {
		return Tree{}, fmt.Errorf("watch pattern %q is a directory; for all files below it write %s/**", pattern, path.Clean(pattern))
	}
	g := newGlob(rest)
	return Tree{base, "glob " + rest, g.match, g.descend}, nil
}

type glob struct {
	whole    string
	segments []string // nil: alternatives may hold slashes
}

func newGlob(pattern string) glob {
	if strings.Contains(pattern, "{") {
		return glob{whole: pattern}
	}
	return glob{pattern, strings.Split(pattern, "/")}
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
