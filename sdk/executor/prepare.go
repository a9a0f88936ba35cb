package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/api/environ"
)

const (
	// envMark is the variable by which everything that a command started is known, wherever it has gone.
	envMark    = "DSH_TASK_MARK"
	envSession = "DSH_SESSION_ID"
	// longestArgument is the most that one argument can be on Linux, MAX_ARG_STRLEN, with the byte that ends it.
	longestArgument = 128 << 10
	// scriptCommand runs the text on descriptor 3 as -c would. The descriptor is closed for what it runs.
	scriptCommand = `eval "$(</dev/fd/3)" 3<&-`
)

// prepare makes the process of a command, or says why there cannot be one. Its error is a status.
func (e *engine) prepare(command *bashv1.Command) (*Process, error) {
	dir, err := e.workdir(command)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	shell, err := e.findShell()
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	p := &Process{
		Command: command, Path: shell, Argv: []string{"bash", "-c", command.GetCommand()}, Dir: dir, Attr: sysProcAttr(),
		Env: append(slices.Clip(slices.Clone(e.env)), "PWD="+dir), TempDir: e.spills.dir,
	}
	if session := command.GetSessionId(); session != "" {
		p.Env = append(p.Env, envSession+"="+session)
	}
	if len(command.GetCommand()) >= longestArgument {
		script, err := newScript(command.GetCommand())
		if err != nil {
			return nil, status.Errorf(codes.ResourceExhausted, "cannot store a command of %d bytes: %v", len(command.GetCommand()), err)
		}
		p.Pass(script)
		p.Argv[2] = scriptCommand
	}
	if e.options.Policy != nil {
		if err := e.options.Policy(p); err != nil {
			p.close()
			return nil, asStatus(err)
		}
	}
	return p, nil
}

// asStatus makes a policy's error a status, unless it is one.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// findShell returns the path of the shell. It looks once, and again when the shell could not be started.
func (e *engine) findShell() (string, error) {
	if found := e.shell.Load(); found != nil {
		return *found, nil
	}
	path, err := exec.LookPath(e.options.Shell)
	if err != nil {
		return "", fmt.Errorf("shell not found: %s: install bash or set the executor's shell", strings.TrimPrefix(err.Error(), "exec: "))
	}
	e.shell.Store(&path)
	return path, nil
}

func (p *Process) close() {
	for _, f := range p.files {
		f.Close()
	}
}

// check finds what no shell could run.
func check(command *bashv1.Command) error {
	switch {
	case command.GetCommand() == "":
		return status.Error(codes.InvalidArgument, "the command is empty")
	case strings.IndexByte(command.GetCommand(), 0) >= 0:
		return status.Error(codes.InvalidArgument, "the command contains a NUL byte")
	case strings.IndexByte(command.GetWorkdir(), 0) >= 0 || strings.IndexByte(command.GetSessionCwd(), 0) >= 0:
		return status.Error(codes.InvalidArgument, "the working directory contains a NUL byte")
	case strings.IndexByte(command.GetSessionId(), 0) >= 0:
		return status.Error(codes.InvalidArgument, "the session id contains a NUL byte")
	}
	return nil
}

// workdir returns the directory that a command runs in: absolute, symbolic links kept.
func (e *engine) workdir(command *bashv1.Command) (string, error) {
	dir, base := command.GetWorkdir(), command.GetSessionCwd()
	if base == "" {
		base = e.options.Cwd
	}
	switch {
	case dir == "":
		dir = base
	case !filepath.IsAbs(dir):
		dir = filepath.Join(base, dir)
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("working directory is not an absolute path: %s", dir)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("working directory does not exist: %s", dir)
	case err != nil:
		return "", fmt.Errorf("working directory cannot be used: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("working directory is not a directory: %s", dir)
	}
	return dir, nil
}

// fixedEnv tells programs that nobody sits in front of them.
var fixedEnv = []string{"NO_COLOR=1", "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat"}

// inheritedEnv returns what commands get of the executor's environment.
func inheritedEnv(inherited, keep []string) []string {
	var env []string
	kept := map[string]bool{}
	for _, variable := range inherited {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case name == "PWD" || name == "OLDPWD" || name == envMark || name == envSession:
		case slices.Contains(keep, name):
			kept[name] = true
			env = append(env, variable)
		case !environ.IsPrivate(name) && !isSetAnew(name):
			env = append(env, variable)
		}
	}
	for _, variable := range fixedEnv {
		if name, _, _ := strings.Cut(variable, "="); !kept[name] {
			env = append(env, variable)
		}
	}
	return env
}

// isSetAnew tells whether a variable is set for every command.
func isSetAnew(name string) bool {
	return slices.ContainsFunc(fixedEnv, func(fixed string) bool { return strings.HasPrefix(fixed, name+"=") })
}
