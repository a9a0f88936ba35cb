package dev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// module writes a small Go module: a program that prints what the package text below it says.
func module(t testing.TB) (dir string) {
	t.Helper()
	dir = tempDir(t)
	write(t, filepath.Join(dir, "go.mod"), "module example.org/hello\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nimport \"example.org/hello/text\"\n\nfunc main() { print(text.Text) }\n")
	write(t, filepath.Join(dir, "text", "text.go"), "package text\n\nconst Text = \"one\"\n")
	return dir
}

func says(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	return string(out)
}

func mustBuild(t *testing.T, source Source) string {
	t.Helper()
	program, err := Build(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func TestAProgramsPathStandsForItsContent(t *testing.T) {
	t.Parallel()
	dir := module(t)
	text := filepath.Join(dir, "text", "text.go")
	one := mustBuild(t, Source{Dir: dir})
	if got := says(t, one); got != "one" {
		t.Errorf("it says %q", got)
	}
	if again := mustBuild(t, Source{Dir: dir}); again != one {
		t.Errorf("built again it is %s, not %s", again, one)
	}
	write(t, filepath.Join(dir, "main_test.go"), "package main\n")
	write(t, filepath.Join(dir, "main_plan9.go"), "package main\n\nfunc x() {}\n")
	if same := mustBuild(t, Source{Dir: dir}); same != one {
		t.Errorf("with files that are no part of it, it is %s, not %s", same, one)
	}
	write(t, text, "package text\n\nconst Text = \"two\"\n")
	two := mustBuild(t, Source{Dir: dir})
	if got := says(t, two); got != "two" || two == one {
		t.Errorf("%s says %q", two, got)
	}
	if got := says(t, one); got != "one" {
		t.Errorf("the old program is gone: %q", got)
	}
	write(t, text, "package text\n\nconst Text = \"one\"\n")
	if back := mustBuild(t, Source{Dir: dir}); back != one {
		t.Errorf("back again it is %s, not %s", back, one)
	}
}

func TestASourceMayBeBuiltManyTimesAtOnce(t *testing.T) {
	t.Parallel()
	source := Source{Dir: module(t)}
	programs := make(chan string, 4)
	for range cap(programs) {
		go func() {
			program, err := Build(t.Context(), source)
			if err != nil {
				t.Error(err)
			}
			programs <- program
		}()
	}
	first := <-programs
	for range cap(programs) - 1 {
		if other := <-programs; other != first {
			t.Errorf("%s and %s", first, other)
		}
	}
	if got := says(t, first); got != "one" {
		t.Errorf("it says %q", got)
	}
}

func TestProgramsArePrivate(t *testing.T) {
	t.Parallel()
	program := mustBuild(t, Source{Dir: module(t)})
	for dir, root := filepath.Dir(program), filepath.Join(os.Getenv("XDG_CACHE_HOME"), "dsh"); dir != root; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

func TestABuildLeavesNothingElse(t *testing.T) {
	t.Parallel()
	program := mustBuild(t, Source{Dir: module(t)})
	var names []string
	for _, info := range entries(filepath.Dir(program)) {
		names = append(names, info.Name())
	}
	if want := []string{filepath.Base(program), "latest"}; !slices.Equal(names, want) && !slices.Equal(names, []string{want[1], want[0]}) {
		t.Errorf("the cache holds %q, want %q", names, want)
	}
}

func TestOldProgramsAreRemoved(t *testing.T) {
	t.Parallel()
	source := Source{Dir: module(t)}
	program := mustBuild(t, source)
	cache := filepath.Dir(program)
	aged := func(name string, age time.Duration) string {
		path := filepath.Join(cache, name)
		write(t, path, name)
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const day = 24 * time.Hour
	want := map[string]bool{}
	for i := range 10 {
		want[aged("young-"+strconv.Itoa(i), time.Duration(i)*time.Hour)] = true
		want[aged("old-"+strconv.Itoa(i), 8*day)] = false
	}
	want[aged("building-now", time.Minute)] = true
	want[aged("building-killed", 2*time.Hour)] = false
	want[aged("../forgotten", 61*day)] = false
	want[aged("../quiet", 59*day)] = true
	want[program] = true
	at := time.Now().Add(-8 * day)
	if err := os.Chtimes(program, at, at); err != nil {
		t.Fatal(err)
	}
	mustBuild(t, source)
	for path, kept := range want {
		if _, err := os.Stat(path); (err == nil) != kept {
			t.Errorf("%s: kept should be %v: %v", path, kept, err)
		}
	}
}

func TestBuildErrorsNameFileAndLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		file  string
		text  string
		lines []string // DIR is the module
	}{
		{"a type error", "main.go", "package main\n\nfunc main() {\n\tvar x int = \"a\"\n\tundefined()\n}\n", []string{
			`DIR/main.go:4:6: declared and not used: x`,
			`DIR/main.go:4:14: cannot use "a" (untyped string constant) as int value in variable declaration`,
			`DIR/main.go:5:2: undefined: undefined`,
		}},
		{"a syntax error", "main.go", "package main\n\nfunc main() {\n", []string{`DIR/main.go:4:1: syntax error: unexpected EOF, expect`}},
		{"in another package", "text/text.go", "package text\n\nconst Text = missing\n", []string{`DIR/text/text.go:3:14: undefined: missing`}},
		{"more to it", "main.go", "package main\n\nfunc f(a, b int) {}\n\nfunc main() { f(1) }\n", []string{
			"DIR/main.go:5:17: not enough arguments in call to f", "\thave (number)", "\twant (int, int)",
		}},
		{"a missing package", "main.go", "package main\n\nimport \"example.org/hello/missing\"\n\nfunc main() { missing.X() }\n", []string{
			`DIR/main.go:3:8: no required module provides package example.org/hello/missing; to add it:`, "\tgo get example.org/hello/missing",
		}},
		{"a broken module", "go.mod", "modul x\n", []string{`go: errors parsing go.mod:`, `DIR/go.mod:1: unknown directive: modul`}},
		{"a library", "main.go", "package hello\n", []string{"it is a library: a plugin is a program, its files begin with `package main`"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := module(t)
			write(t, filepath.Join(dir, c.file), c.text)
			_, err := Build(t.Context(), Source{Dir: dir})
			var failure *BuildError
			if !errors.As(err, &failure) {
				t.Fatalf("error %v", err)
			}
			var want []string
			for _, line := range c.lines {
				want = append(want, strings.ReplaceAll(line, "DIR", dir))
			}
			if !slices.EqualFunc(failure.Lines, want, strings.HasPrefix) || failure.Dir != dir || failure.More != 0 {
				t.Errorf("lines:\n%s\nwant:\n%s\ndir %s, %d more", strings.Join(failure.Lines, "\n"), strings.Join(want, "\n"), failure.Dir, failure.More)
			}
		})
	}
}

func TestABuildErrorIsShort(t *testing.T) {
	t.Parallel()
	dir := module(t)
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() {\n"+strings.Repeat("\tx(1, 2\n", 30)+"}\n")
	var text strings.Builder
	for range 50 {
		text.WriteString("echo a line >&2; ")
	}
	for _, source := range []Source{{Dir: dir}, {Dir: dir, Build: []string{"bash", "-c", text.String() + "exit 3"}}} {
		_, err := Build(t.Context(), source)
		var failure *BuildError
		if !errors.As(err, &failure) || len(failure.Lines) > shownLines {
			t.Errorf("error %v", err)
		}
	}
	_, err := Build(t.Context(), Source{Dir: dir, Build: []string{"bash", "-c", text.String() + "exit 3"}})
	var failure *BuildError
	if !errors.As(err, &failure) || failure.More != 31 || !strings.HasSuffix(failure.Lines[19], "exit status 3") {
		t.Errorf("%d more than:\n%s", failure.More, failure)
	}
}

func TestABuildCommandRunsInItsDirectory(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	source := Source{Dir: dir, Build: []string{"bash", "-c", "echo $X >made; cat"}, Env: append(os.Environ(), "X=y")}
	if program := mustBuild(t, source); program != "" {
		t.Errorf("the program is %q", program)
	}
	if made, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(made) != "y\n" {
		t.Errorf("made: %q, %v", made, err)
	}
	write(t, filepath.Join(dir, "src", "a.ts"), "")
	write(t, filepath.Join(dir, "a b", "c.c"), "")
	source.Build = []string{"bash", "-c", "echo 'src/a.ts(3,5): error TS1'; echo 'src/b.ts:3: no such file'; echo '  a b/c.c:1:2: x'; exit 1"}
	_, err := Build(t.Context(), source)
	want := "cannot build " + dir + ":\n" + dir + "/src/a.ts(3,5): error TS1\nsrc/b.ts:3: no such file\n  " + dir + "/a b/c.c:1:2: x\nbash -c " + source.Build[2] + ": exit status 1"
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
}

func TestWhatCannotBeBuiltSaysWhy(t *testing.T) {
	dir := tempDir(t)
	for _, c := range []struct {
		source Source
		says   string
	}{
		{Source{Dir: filepath.Join(dir, "none")}, filepath.Join(dir, "none") + " is not a directory"},
		{Source{Dir: dir, Build: []string{"no-such-command"}}, `no-such-command: exec: "no-such-command": executable file not found in $PATH`},
	} {
		_, err := Build(t.Context(), c.source)
		if err == nil || !strings.HasSuffix(err.Error(), c.says) {
			t.Errorf("error %v", err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("PATH", "/nowhere")
	_, err := Build(t.Context(), Source{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "the command go is not in $PATH") {
		t.Errorf("without go: %v", err)
	}
}

func TestACancelledBuildIsKilledWithAllThatItStarted(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	fifo := filepath.Join(dir, "pids")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Build(ctx, Source{Dir: dir, Build: []string{"bash", "-c", "sleep 1000 & echo $! >pids; wait"}})
		ended <- err
	}()
	text, err := os.ReadFile(fifo)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := receive(t, "the end of the build", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	waitUntil(t, "the process ends", func() bool { return !alive(pid) })
}

// alive tells whether a process is there and no zombie.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

func TestWhatABuildLeavesRunningIsKilled(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	mustBuild(t, Source{Dir: dir, Build: []string{"bash", "-c", "sleep 1000 & echo $! >pid"}})
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the process ends", func() bool { return !alive(pid) })
}
