package dev

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ran is a Loop that runs until the test ends.
type ran struct {
	t      *testing.T
	built  chan string
	failed chan *BuildError
	log    *logBuffer
	stop   func()
}

func start(t *testing.T, source Source) *ran {
	t.Helper()
	log, logger := newLog()
	r := &ran{t: t, built: make(chan string, 100), failed: make(chan *BuildError, 100), log: log}
	loop := &Loop{
		Source: source, Log: logger,
		Built:  func(result Result) { r.built <- result.Program },
		Failed: func(err *BuildError) { r.failed <- err },
		timing: onlyEvents,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := receive(t, "the end of the loop", ended); err != nil {
			t.Errorf("the loop ended with %v", err)
		}
		ended <- nil
	}
	t.Cleanup(r.stop)
	return r
}

func (r *ran) program() string {
	r.t.Helper()
	select {
	case program := <-r.built:
		return program
	case err := <-r.failed:
		r.t.Fatalf("not built: %v", err)
	case <-time.After(patience):
		r.t.Fatalf("not built after %v; the log:\n%s", patience, r.log)
	}
	panic("unreachable")
}

func (r *ran) failure() string {
	r.t.Helper()
	select {
	case program := <-r.built:
		r.t.Fatalf("built: %s", program)
	case err := <-r.failed:
		return err.Error()
	case <-time.After(patience):
		r.t.Fatalf("no error after %v; the log:\n%s", patience, r.log)
	}
	panic("unreachable")
}

// nothingElse stops the loop and shows that it told nothing that was not received.
func (r *ran) nothingElse() {
	r.t.Helper()
	r.stop()
	select {
	case program := <-r.built:
		r.t.Errorf("built once more: %q", program)
	case err := <-r.failed:
		r.t.Errorf("failed once more: %v", err)
	default:
	}
}

func TestASavedFileIsANewProgram(t *testing.T) {
	t.Parallel()
	dir := module(t)
	text := filepath.Join(dir, "text", "text.go")
	r := start(t, Source{Dir: dir})
	one := r.program()
	if got := says(t, one); got != "one" {
		t.Errorf("it says %q", got)
	}
	write(t, text, "package text\n\nconst Text = \"two\"\n")
	if got := says(t, r.program()); got != "two" {
		t.Errorf("it says %q", got)
	}
	shell(t, dir, `sed 's/two/three/' text/text.go >text/.t; mv text/.t text/text.go`)
	if got := says(t, r.program()); got != "three" {
		t.Errorf("it says %q", got)
	}
	r.nothingElse()
}

func TestTheSameProgramIsNoReload(t *testing.T) {
	t.Parallel()
	dir := module(t)
	r := start(t, Source{Dir: dir})
	r.program()
	write(t, filepath.Join(dir, "main_plan9.go"), "package main\n\nfunc x() {}\n")
	r.log.waitFor(t, "the program is the same")
	r.nothingElse()
}

func TestABuildErrorIsToldOnceAndItsRepairGoesLive(t *testing.T) {
	t.Parallel()
	dir := module(t)
	text := filepath.Join(dir, "text", "text.go")
	r := start(t, Source{Dir: dir})
	r.program()
	write(t, text, "package text\n\nconst Text = missing\n")
	if got, want := r.failure(), text+":3:14: undefined: missing"; !strings.HasSuffix(got, want) {
		t.Errorf("error:\n%s\nwant:\n%s", got, want)
	}
	write(t, text, "package text\n\nconst Text = missing // still\n") // the same error: not told again
	write(t, text, "package text\n\nconst Text = absent\n")
	if got, want := r.failure(), text+":3:14: undefined: absent"; !strings.HasSuffix(got, want) {
		t.Errorf("error:\n%s\nwant:\n%s", got, want)
	}
	write(t, text, "package text\n\nconst Text = \"two\"\n")
	if got := says(t, r.program()); got != "two" {
		t.Errorf("it says %q", got)
	}
	r.nothingElse()
}

func TestTheSameErrorIsNotToldAgain(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	write(t, filepath.Join(dir, "a.x"), "1")
	r := start(t, Source{Dir: dir, Watch: []string{"*.x"}, Build: []string{"bash", "-c", "echo built >>builds; grep -q good a.x"}})
	r.failure()
	write(t, filepath.Join(dir, "a.x"), "2")
	waitUntil(t, "it is built again", func() bool { return builds(dir) == 2 })
	write(t, filepath.Join(dir, "a.x"), "good")
	r.program()
	write(t, filepath.Join(dir, "a.x"), "1")
	r.failure() // it was well in between
	r.nothingElse()
}

func builds(dir string) int {
	text, _ := os.ReadFile(filepath.Join(dir, "builds"))
	return strings.Count(string(text), "\n")
}

func TestABrokenStartIsRepaired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, breakIt, repair string }{
		{"the code", `echo 'func (' >>main.go`, `sed -i '$d' main.go`},
		{"the module", `echo oops >>go.mod`, `sed -i '$d' go.mod`},
		{"a package that is missing", `mv text elsewhere`, `mkdir text; sleep .5; mv elsewhere/* text`},
		{"a file that is embedded", `sed -i 's/^import.*/import _ "embed"\n&\n\/\/go:embed data\/x.txt\nvar x string/' main.go`, `mkdir data; echo 1 >data/x.txt`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := module(t)
			shell(t, dir, c.breakIt)
			r := start(t, Source{Dir: dir})
			r.failure()
			shell(t, dir, c.repair)
			waitUntil(t, "it is built", func() bool { return len(r.built) > 0 }) // there may be another error on the way
		})
	}
}

func TestWhatIsAddedIsWatchedFromThenOn(t *testing.T) {
	t.Parallel()
	dir := module(t)
	r := start(t, Source{Dir: dir})
	one := r.program()
	shell(t, dir, `mkdir more; printf 'package more\n\nconst X = "1"\n' >more/more.go
		sed -i 's#^import.*#import ("example.org/hello/more"; "example.org/hello/text")#; s#text.Text#text.Text + more.X#' main.go`)
	two := r.program()
	if got := says(t, two); got != "one1" || one == two {
		t.Errorf("it says %q", got)
	}
	shell(t, dir, `sed -i 's/1/2/' more/more.go`)
	if got := says(t, r.program()); got != "one2" {
		t.Errorf("it says %q", got)
	}
	shell(t, dir, `printf 'package more\n\nfunc init() { print("init ") }\n' >more/init.go`)
	if got := says(t, r.program()); got != "init one2" {
		t.Errorf("it says %q", got)
	}
	r.nothingElse()
}

func TestASaveDuringABuildStartsOver(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	write(t, filepath.Join(dir, "a.x"), "1")
	r := start(t, Source{Dir: dir, Watch: []string{"*.x"}, Build: []string{"bash", "-c", "x=$(cat a.x); echo $x >>builds; [ $x = 2 ] || sleep 1000"}})
	waitUntil(t, "the build begins", func() bool { return builds(dir) == 1 })
	write(t, filepath.Join(dir, "a.x"), "2")
	if program := r.program(); program != "" {
		t.Errorf("the program is %q", program)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "builds")); err != nil || string(text) != "1\n2\n" {
		t.Errorf("builds: %q, %v", text, err)
	}
	r.nothingElse()
}

func TestASourceWithoutABuildIsToldAtTheStartAndAfterEachChange(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	write(t, filepath.Join(dir, "src", "a.py"), "1")
	r := start(t, Source{Dir: dir, Watch: []string{"src/**/*.py"}})
	r.program()
	shell(t, dir, `touch src/a.py; chmod 700 src/a.py; mkdir src/new; echo 1 >src/new/b.py; echo 2 >src/a.py`)
	r.program()
	r.nothingElse()
}

func TestABuildThatWritesWhatIsWatchedComesToAnEnd(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"at its end":       `echo built >>builds; echo $RANDOM$RANDOM$RANDOM >out.x`,
		"at its beginning": `echo built >>builds; echo $RANDOM$RANDOM$RANDOM >out.x; sleep 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			write(t, filepath.Join(dir, "a.x"), "1")
			r := start(t, Source{Dir: dir, Watch: []string{"*.x"}, Build: []string{"bash", "-c", script}})
			r.log.waitFor(t, "the build writes files that are watched")
			r.log.waitFor(t, "out.x")
			for range 5 { // at most: the last build before the warning may not have been told yet
				r.program()
				if len(r.built) == 0 && builds(dir) >= outputAfter {
					break
				}
			}
			before := builds(dir)
			write(t, filepath.Join(dir, "a.x"), "2")
			waitUntil(t, "it is built again", func() bool { return builds(dir) > before })
			r.program()
		})
	}
}

func TestAMalformedPatternIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	_, logger := newLog()
	err := (&Loop{Source: Source{Dir: tempDir(t), Watch: []string{"["}}, Log: logger}).Run(t.Context())
	if err == nil || err.Error() != `watch pattern "[" is malformed` {
		t.Errorf("error %v", err)
	}
}

func TestAStoppedLoopStopsItsBuild(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	r := start(t, Source{Dir: dir, Watch: []string{"*.x"}, Build: []string{"bash", "-c", "echo built >>builds; sleep 1000"}})
	waitUntil(t, "the build begins", func() bool { return builds(dir) == 1 })
	r.nothingElse()
}

// BenchmarkSave is the time from a saved file to its program, and of it what go build takes by itself. One save follows the other, so
// finding the files of the last build competes with the next.
func BenchmarkSave(b *testing.B) {
	dir := module(b)
	built := make(chan string, 1)
	_, logger := newLog()
	loop := &Loop{Source: Source{Dir: dir}, Log: logger, Built: func(result Result) { built <- result.Program }, Failed: func(err *BuildError) { b.Error(err) }}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	<-built
	save := func(i int) {
		text := fmt.Sprintf("package text\n\nconst Text = %q\n", fmt.Sprint(b.N, i, time.Now()))
		if err := os.WriteFile(filepath.Join(dir, "text", "text.go"), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		save(i)
		<-built
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	var bare time.Duration
	for i := range b.N {
		save(-i - 1)
		started := time.Now()
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(b.TempDir(), "program"), ".")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		bare += time.Since(started)
	}
	b.ReportMetric(float64(bare.Milliseconds())/float64(b.N), "go-build-ms/op")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/op")
	b.ReportMetric(float64((b.Elapsed()-bare).Milliseconds())/float64(b.N), "added-ms/op")
	b.ReportMetric(0, "ns/op")
}
