package dev

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// survey is where one look at the disk found the files of a set: what to watch, and what to compare.
type survey struct {
	// dirs are the directories in which something matters, by their real paths.
	dirs map[string]*interest
	// files are the paths to compare.
	files map[string]bool

	known map[string]resolved
}

// interest is what matters in a directory.
type interest struct {
	names map[string]bool
	trees []branch
}

// branch is a directory as a tree sees it.
type branch struct {
	tree     *Tree
	relative string
}

func (i *interest) in(name string) bool {
	if i.names[name] {
		return true
	}
	for _, b := range i.trees {
		if path := join(b.relative, name); b.tree.match(path) || b.tree.descend(path) {
			return true
		}
	}
	return false
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func look(set *Set) *survey {
	s := &survey{dirs: map[string]*interest{}, files: map[string]bool{}, known: map[string]resolved{}}
	for _, file := range set.Files {
		s.file(file)
	}
	for i := range set.Trees {
		tree := &set.Trees[i]
		if real, ok := s.resolve(tree.dir, maxLinks); ok {
			s.walk(tree, tree.dir, real, "", nil)
		}
	}
	return s
}

func (s *survey) file(path string) {
	s.files[path] = true
	s.resolve(path, maxLinks)
}

// walk adds the files of a tree in a directory: at path, where links are followed, really at real, in the tree at relative.
func (s *survey) walk(tree *Tree, path, real, relative string, above []string) {
	for _, dir := range above {
		if dir == real { // a link to a directory above itself
			return
		}
	}
	above = append(above, real)
	i := s.interest(real)
	i.trees = append(i.trees, branch{tree, relative})
	entries, _ := os.ReadDir(real) // what went away meanwhile is gone; what cannot be read has no files
	for _, entry := range entries {
		child, childPath := join(relative, entry.Name()), filepath.Join(path, entry.Name())
		isDir := entry.IsDir()
		if entry.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(childPath)
			isDir = err == nil && info.IsDir()
		}
		switch {
		case isDir && tree.descend(child):
			if childReal, ok := s.resolve(childPath, maxLinks); ok {
				s.walk(tree, childPath, childReal, child, above)
			}
		case !isDir && tree.match(child):
			s.file(childPath)
		}
	}
}

func (s *survey) interest(dir string) *interest {
	i := s.dirs[dir]
	if i == nil {
		i = &interest{names: map[string]bool{}}
		s.dirs[dir] = i
	}
	return i
}

// maxLinks is how many symbolic links a path may lead through.
const maxLinks = 40

type resolved struct {
	real string
	ok   bool
}

// resolve follows a path to what it really is, and adds every directory entry that decides so: each link on the way, and the file
// at the end or the first thing that is missing.
func (s *survey) resolve(path string, links int) (real string, ok bool) {
	if r, found := s.known[path]; found {
		return r.real, r.ok
	}
	defer func() { s.known[path] = resolved{real, ok} }()
	if path == filepath.Dir(path) {
		return path, true
	}
	parent, ok := s.resolve(filepath.Dir(path), links)
	if !ok {
		return "", false
	}
	name := filepath.Base(path)
	real = filepath.Join(parent, name)
	info, err := os.Lstat(real)
	if err == nil && info.IsDir() {
		return real, true
	}
	s.interest(parent).names[name] = true
	switch {
	case err != nil:
		return "", false
	case info.Mode()&fs.ModeSymlink == 0:
		return real, true
	case links == 0:
		return "", false
	}
	target, err := os.Readlink(real)
	if err != nil {
		return "", false
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(parent, target)
	}
	return s.resolve(target, links-1)
}

// identity is what changes with a file's content, and more often.
type identity struct {
	device, inode uint64
	size          int64
	changed       int64 // nanoseconds
}

// state is what a path held at one time.
type state struct {
	exists   bool
	size     int64
	sum      [sha256.Size]byte // of a regular file that could be read
	identity identity
	// settled: the file was last changed long enough before it was read that a change after would show in its identity.
	settled  bool
	modified time.Time
}

func (s state) same(other state) bool { return s.exists == other.exists && s.sum == other.sum }

// clockGrain is the coarsest clock of a file system.
const clockGrain = 2 * time.Second

// observe reads what a path holds, if there is a sign that it is not what it was.
func observe(path string, was state) state {
	now := time.Now()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return state{}
	case err != nil: // it may not be looked at, which says nothing about what it holds
		return was
	}
	id := identify(info)
	if was.exists && was.settled && was.identity == id {
		return was
	}
	is := state{exists: true, size: info.Size(), identity: id, modified: info.ModTime()}
	if !info.Mode().IsRegular() {
		return is
	}
	f, err := os.Open(path)
	if err != nil {
		is.sum = was.sum
		return is
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		is.sum = was.sum
		return is
	}
	hash.Sum(is.sum[:0])
	is.settled = now.Sub(time.Unix(0, id.changed)) > clockGrain
	return is
}
