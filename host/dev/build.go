package dev

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// programsKept is how many programs of a source are kept, and programAge is how long all of them are: an instance that runs one
	// may have to be started again.
	programsKept = 5
	programAge   = 7 * 24 * time.Hour
	// sourceAge is how long the programs of a source that is not built any more are kept.
	sourceAge = 60 * 24 * time.Hour
)

// Build builds the Go package in a source's directory, or runs its build command, and returns the program: a path that stands for
// its content, so the same path means the same program. Of a source that is not Go the path is empty. The error is a [*BuildError]
// or, when the context ended, the context's; the build is killed then.
func Build(ctx context.Context, source Source) (string, error) {
	if info, err := os.Stat(source.Dir); err != nil || !info.IsDir() {
		return "", &BuildError{Dir: source.Dir, Lines: []string{source.Dir + " is not a directory"}}
	}
	if source.isGo() {
		return buildGo(ctx, source)
	}
	if len(source.Build) > 0 {
		if _, out, err := run(ctx, source.Dir, source.Env, source.Build...); err != nil {
			return "", failed(ctx, source.Dir, source.Build, out, err)
		}
	}
	return "", ctx.Err()
}

func failed(ctx context.Context, dir string, argv []string, out *output, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return failure(dir, argv, out, err)
}

// buildGo has go build write to one path per source, where it finds its last result and has nothing to do when that is still right.
func buildGo(ctx context.Context, source Source) (string, error) {
	cache, err := cacheDir(source.Dir)
	if err != nil {
		return "", &BuildError{Dir: source.Dir, Lines: []string{err.Error()}}
	}
	// On the same file system, go build can rename its result into place: a program is whole, or not there.
	temporary, err := os.MkdirTemp(cache, temporaryPrefix)
	if err != nil {
		return "", &BuildError{Dir: source.Dir, Lines: []string{err.Error()}}
	}
	defer os.RemoveAll(temporary)
	env := source.Env
	if env == nil {
		env = os.Environ()
	}
	env = append(slices.Clip(env), "GOTMPDIR="+temporary)

	latest := filepath.Join(cache, "latest")
	argv := []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", latest, "."}
	if _, out, err := run(ctx, source.Dir, env, argv...); err != nil {
		return "", failed(ctx, source.Dir, argv, out, err)
	}
	program, err := keep(latest, temporary, cache, filepath.Base(source.Dir))
	if err != nil {
		return "", &BuildError{Dir: source.Dir, Lines: []string{err.Error()}}
	}
	prune(cache, program)
	return program, nil
}

const temporaryPrefix = "building-"

// cacheDir is the private directory for the programs of a source.
func cacheDir(source string) (string, error) {
	root := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(root) {
		var err error
		if root, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("no place for built programs: %w", err)
		}
	}
	sum := sha256.Sum256([]byte(source))
	dir := filepath.Join(root, "dsh", "build", plain(filepath.Base(source))+"-"+hex.EncodeToString(sum[:4]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a place for built programs: %w", err)
	}
	return dir, os.Chmod(filepath.Dir(dir), 0o700)
}

// plain is a name without what is odd in a command line.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// keep gives a built program its name. It links: the file is never open for writing in this process, where a plugin that is started
// meanwhile would inherit it and make the program busy. And what is hashed is what is kept, whoever else builds the same source.
func keep(latest, temporary, cache, name string) (string, error) {
	mine := filepath.Join(temporary, "program")
	if os.Link(latest, mine) != nil {
		if err := os.Rename(latest, mine); err != nil { // without links the next build has more to do
			return "", err
		}
	}
	f, err := os.Open(mine)
	if err != nil {
		return "", err
	}
	defer f.Close()
	magic := make([]byte, len(archiveMagic))
	if _, err := io.ReadFull(f, magic); err == nil && bytes.Equal(magic, archiveMagic) {
		_ = os.Remove(latest)
		return "", fmt.Errorf("it is a library: a plugin is a program, its files begin with `package main`")
	}
	hash := sha256.New()
	hash.Write(magic)
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	program := filepath.Join(cache, plain(name)+"-"+hex.EncodeToString(hash.Sum(nil)[:8]))
	if err := os.Rename(mine, program); err != nil {
		return "", err
	}
	now := time.Now()
	return program, os.Chtimes(program, now, now) // its age is the time since a build gave it
}

// archiveMagic is how the result of building a package that is not main begins.
var archiveMagic = []byte("!<arch>\n")

// prune removes the programs that nothing can run any more. What cannot be removed stays for the next time.
func prune(cache, current string) {
	now := time.Now()
	older := func(info fs.FileInfo, age time.Duration) bool { return now.Sub(info.ModTime()) > age }
	var programs []fs.FileInfo
	for _, info := range entries(cache) {
		path := filepath.Join(cache, info.Name())
		switch {
		case strings.HasPrefix(info.Name(), temporaryPrefix):
			if older(info, time.Hour) { // its host was killed
				_ = os.RemoveAll(path)
			}
		case info.Name() != "latest" && path != current:
			programs = append(programs, info)
		}
	}
	slices.SortFunc(programs, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, info := range programs {
		if i >= programsKept-1 && older(info, programAge) {
			_ = os.Remove(filepath.Join(cache, info.Name()))
		}
	}
	_ = os.Chtimes(cache, now, now)
	for _, info := range entries(filepath.Dir(cache)) {
		if older(info, sourceAge) {
			_ = os.RemoveAll(filepath.Join(filepath.Dir(cache), info.Name()))
		}
	}
}

func entries(dir string) (infos []fs.FileInfo) {
	list, _ := os.ReadDir(dir)
	for _, entry := range list {
		if info, err := entry.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	return infos
}
