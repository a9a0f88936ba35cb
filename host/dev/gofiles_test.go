package dev

import (
	"path/filepath"
	"testing"
)

func TestExactlyTheFilesOfABuildAreWatched(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	for path, text := range map[string]string{
		"app/go.mod": "module example.org/app\n\ngo 1.26\n\nrequire example.org/near v0.0.0\n\nreplace example.org/near => ../near\n",
		"app/main.go": "package main\n\nimport (\n\t\"embed\"\n\t\"example.org/app/used\"\n\t\"example.org/app/later\"\n\t\"example.org/near\"\n)\n\n" +
			"//go:embed assets web/*.html all:deep/in\nvar FS embed.FS\n\nfunc main() { used.X(); near.X(); later.X() }\n",
		"app/used/used.go":         "package used\n\nfunc X() {}\n",
		"app/unused/unused.go":     "package unused\n",
		"app/assets/a.txt":         "",
		"app/assets/sub/b.txt":     "",
		"app/web/index.html":       "",
		"app/deep/in/.hidden/file": "",
		"near/go.mod":              "module example.org/near\n\ngo 1.26\n",
		"near/near.go":             "package near\n\nfunc X() {}\n",
	} {
		write(t, filepath.Join(root, path), text)
	}
	set, err := goFiles(t.Context(), Source{Dir: filepath.Join(root, "app")})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"app/go.mod":               true,
		"app/go.sum":               true,
		"app/go.work":              true,
		"app/main.go":              true,
		"app/new.go":               true,
		"app/asm_amd64.s":          true,
		"app/main_test.go":         false,
		"app/.main.go":             false,
		"app/_old.go":              false,
		"app/README.md":            false,
		"app/used/used.go":         true,
		"app/used/deeper/x.go":     false,
		"app/unused/unused.go":     false,
		"app/later/later.go":       true,
		"app/assets/a.txt":         true,
		"app/assets/sub/b.txt":     true,
		"app/assets/new/deep/c":    true,
		"app/assets/.a.txt.swp":    false,
		"app/assets/_x/a":          false,
		"app/web/index.html":       true,
		"app/web/new.html":         true,
		"app/web/style.css":        false,
		"app/deep/in/.hidden/file": true,
		"app/deep/out":             false,
		"near/near.go":             true,
		"near/go.mod":              true,
		"near/near_test.go":        false,
	} {
		if got := set.covers(filepath.Join(root, path)); got != want {
			t.Errorf("%s: watched is %v, want %v", path, got, want)
		}
	}
	for _, tree := range set.Trees {
		if _, err := filepath.Rel(root, tree.dir); err != nil || !inside(root, tree.dir) {
			t.Errorf("%s is watched", tree.dir)
		}
	}
	if found := look(&set).files; !found[filepath.Join(root, "app/deep/in/.hidden/file")] || found[filepath.Join(root, "app/unused/unused.go")] {
		t.Errorf("found: %v", found)
	}
}

func TestAWorkspaceIsWatched(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	for path, text := range map[string]string{
		"go.work":      "go 1.26\n\nuse (\n\t./app\n\t./near\n)\n",
		"app/go.mod":   "module example.org/app\n\ngo 1.26\n",
		"app/main.go":  "package main\n\nimport \"example.org/near\"\n\nfunc main() { near.X() }\n",
		"near/go.mod":  "module example.org/near\n\ngo 1.26\n",
		"near/near.go": "package near\n\nfunc X() {}\n",
	} {
		write(t, filepath.Join(root, path), text)
	}
	set, err := goFiles(t.Context(), Source{Dir: filepath.Join(root, "app")})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"go.work", "go.work.sum", "app/go.mod", "near/go.mod", "near/near.go"} {
		if !set.covers(filepath.Join(root, path)) {
			t.Errorf("%s is not watched", path)
		}
	}
}

func TestABrokenModuleIsStillWatched(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	write(t, filepath.Join(dir, "go.mod"), "modul x\n")
	write(t, filepath.Join(dir, "cmd", "x", "main.go"), "package main\n")
	set, err := goFiles(t.Context(), Source{Dir: filepath.Join(dir, "cmd", "x")})
	if err == nil {
		t.Error("no error")
	}
	for _, path := range []string{"go.mod", "cmd/x/main.go"} {
		if !set.covers(filepath.Join(dir, path)) {
			t.Errorf("%s is not watched", path)
		}
	}
}
