package dev

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		matches []string
		not     []string
	}{
		{"main.py", []string{"main.py"}, []string{"a/main.py", "main.pyc"}},
		{"./src/*.ts", []string{"src/a.ts"}, []string{"a.ts", "src/b/a.ts", "src/.a.ts"}},
		{"src/**/*.ts", []string{"src/a.ts", "src/x/y/a.ts"}, []string{"a.ts", "src/a.js"}},
		{"**", []string{"a", "b/c"}, []string{".a", "b/.c"}},
		{"*.{ts,tsx}", []string{"a.ts", "a.tsx"}, []string{"a.t"}},
		{".config/*", []string{".config/a"}, []string{"config/a"}},
		{".env", []string{".env"}, []string{"env"}},
		{"../lib/*.ts", []string{"../lib/a.ts"}, []string{"lib/a.ts"}},
		{"[ab]/*.c", []string{"a/x.c", "b/x.c"}, []string{"c/x.c"}},
	} {
		dir := "/root/[odd] dir"
		tree, err := Glob(dir, c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		set := Set{Trees: []Tree{tree}}
		for _, path := range c.matches {
			if !set.covers(filepath.Join(dir, path)) {
				t.Errorf("%s does not match %s", c.pattern, path)
			}
		}
		for _, path := range c.not {
			if set.covers(filepath.Join(dir, path)) {
				t.Errorf("%s matches %s", c.pattern, path)
			}
		}
	}
}

func TestPatternsThatMeanNothingAreErrors(t *testing.T) {
	dir := tempDir(t)
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"src/[":  `watch pattern "src/[" is malformed`,
		"src":    `watch pattern "src" is a directory; for all files below it write src/**`,
		"./src/": `watch pattern "./src/" is a directory; for all files below it write src/**`,
	} {
		if _, err := Glob(dir, pattern); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", pattern, err, want)
		}
	}
}

func TestDirectoriesThatCannotHoldMatchesAreNotEntered(t *testing.T) {
	for _, c := range []struct {
		pattern string
		enters  []string
		not     []string
	}{
		{"*.ts", nil, []string{"a"}},
		{"a/*/c.ts", []string{"a", "a/b"}, []string{"b", "a/b/c"}},
		{"a/**/c.ts", []string{"a", "a/b", "a/b/c"}, []string{"b", "a/.git", "a/node_modules/x", "a/b/node_modules"}},
		{"node_modules/mine/**", []string{"node_modules", "node_modules/mine", "node_modules/mine/src"}, []string{"node_modules/other"}},
		{".config/*", []string{".config"}, []string{".git"}},
		{"{a/b,c}/*.ts", []string{"a", "a/b", "c"}, []string{".git"}},
	} {
		// the pattern's fixed part is where the tree begins; what is entered is told relative to it
		g := newGlob(c.pattern)
		for _, dir := range c.enters {
			if !g.descend(dir) {
				t.Errorf("%s does not enter %s", c.pattern, dir)
			}
		}
		for _, dir := range c.not {
			if g.descend(dir) {
				t.Errorf("%s enters %s", c.pattern, dir)
			}
		}
	}
}
