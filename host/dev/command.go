package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// shownLines is how many lines of a failed build are kept.
	shownLines = 20
	// outputKept is how much of a build's output is kept of its beginning, and of its end.
	outputKept = 64 << 10
	// drainTime is how long the output of an ended build is read on, for what it left running may hold it open.
	drainTime = 200 * time.Millisecond
)

// BuildError says why a build failed, in the words of the compiler.
type BuildError struct {
	// Dir is the directory of the source.
	Dir string
	// Lines are what a person needs to see, with absolute paths: `/path/main.go:5:2: undefined: x`.
	Lines []string
	// More is how many lines were left out.
	More int
}

// Error is the directory and the lines, each on a line of its own.
func (e *BuildError) Error() string {
	text := fmt.Sprintf("cannot build %s:\n%s", e.Dir, strings.Join(e.Lines, "\n"))
	if e.More > 0 {
		text += fmt.Sprintf("\n… and %d more lines", e.More)
	}
	return text
}

// run runs a command of a build to its end, or kills its process group when the context ends first. It returns the output.
func run(ctx context.Context, dir string, env []string, argv ...string) (stdout []byte, stderr *output, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, groupAttributes()
	var out bytes.Buffer
	stderr = &output{}
	cmd.Stdout, cmd.Stderr = &out, stderr
	if argv[0] != "go" { // a build tool of whatever kind: its messages may be on either
		cmd.Stdout = stderr
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drainTime
	// The parent-death signal is sent when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, exec.ErrWaitDelay) { // it has ended well, something that it started has not
		err = nil
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return out.Bytes(), stderr, err
}

// output keeps the beginning and the end of what is written to it.
type output struct {
	head, tail []byte
	cut        bool
}

func (o *output) Write(p []byte) (int, error) {
	n := min(len(p), outputKept-len(o.head))
	o.head = append(o.head, p[:n]...)
	o.tail = append(o.tail, p[n:]...)
	if over := len(o.tail) - outputKept; over > 0 {
		o.tail, o.cut = append([]byte(nil), o.tail[over:]...), true
	}
	return len(p), nil
}

func (o *output) lines() []string {
	text := string(o.head)
	if o.cut {
		text += "\n…\n"
	}
	text += string(o.tail)
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \t\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// failure is the BuildError of a command that ended with err.
func failure(dir string, argv []string, stderr *output, err error) *BuildError {
	e := &BuildError{Dir: dir}
	isGo := argv[0] == "go"
	for _, line := range stderr.lines() {
		if isGo && (strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "go: downloading ")) {
			continue
		}
		e.Lines = append(e.Lines, clickable(dir, line))
	}
	if len(e.Lines) == 0 || !isGo {
		e.Lines = append(e.Lines, explain(argv, err))
	}
	if e.More = max(0, len(e.Lines)-shownLines); e.More > 0 {
		if isGo { // a compiler begins with what is wrong, other tools end with it
			e.Lines = e.Lines[:shownLines]
		} else {
			e.Lines = e.Lines[e.More:]
		}
	}
	return e
}

func explain(argv []string, err error) string {
	if errors.Is(err, exec.ErrNotFound) && argv[0] == "go" {
		return "the command go is not in $PATH; a row with source: needs it: install Go (https://go.dev/dl), or build the program and name it with command:"
	}
	return fmt.Sprintf("%s: %v", strings.Join(argv, " "), err)
}

var linePlace = regexp.MustCompile(`^(\s*)(\S.*?)([:(]\d+.*)$`)

// clickable makes the path at the beginning of a compiler's line absolute: `main.go:5:2: …`, `src/main.ts(5,2): …`.
func clickable(dir, line string) string {
	m := linePlace.FindStringSubmatch(line)
	if m == nil || filepath.IsAbs(m[2]) {
		return line
	}
	path := filepath.Join(dir, m[2])
	if _, err := os.Stat(path); err != nil {
		return line
	}
	return m[1] + path + m[3]
}
