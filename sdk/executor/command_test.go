package executor_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

func TestCommandIsRunByteForByte(t *testing.T) {
	f := start(t, executor.Options{})
	for _, test := range []struct {
		name, command, stdout string
		code                  int32
	}{
		{"heredoc without a final newline", "cat <<'E'\nx\nE", "x\n", 0},
		{"comment at the end", "echo hi # c", "hi\n", 0},
		{"stdin is /dev/null", "cat; echo rc=$?; readlink /proc/self/fd/0", "rc=0\n/dev/null\n", 0},
		{"name of the shell", "echo $0 $#", "bash 0\n", 0},
		{"plain status of a pipe", "yes | head -n1", "y\n", 0},
		{"status of each in a pipe", "(exit 3)|cat; echo ${PIPESTATUS[0]}", "3\n", 0},
		{"order of streams that share a pipe", "for i in 1 2 3; do echo o$i; echo e$i >&2; done 2>&1", "o1\ne1\no2\ne2\no3\ne3\n", 0},
		{"no login shell", "shopt -q login_shell || echo none; echo $-", "none\nhBc\n", 0},
		{"no controlling terminal", "{ : >/dev/tty; } 2>/dev/null && echo tty || echo notty", "notty\n", 0},
		{"leads its group and its session", `read -r _ _ _ _ group session _ </proc/$$/stat; [ $$ = $group ] && [ $$ = $session ] && echo leads`, "leads\n", 0},
		{"no file but the three is open", `ls /proc/self/fd | tr '\n' ' '`, "0 1 2 3 ", 0}, // ls has the directory open
		{"a failing last command", "false", "", 1},
		{"a command that is not there", "nosuchcommand-x 2>/dev/null", "", 127},
		{"a syntax error", "if 2>/dev/null", "", 2},
		{"bytes that are no text", `printf '\xff\xfe'`, "\xff\xfe", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := f.run(t, test.command)
			if stdout := string(r.GetStdout().GetData()); stdout != test.stdout || r.GetExit().GetCode() != test.code {
				t.Errorf("got %q, exit %v", r.GetStdout().GetData(), r.GetExit())
			}
		})
	}
}

func TestCommandLargerThanAnArgument(t *testing.T) {
	f := start(t, executor.Options{})
	for _, size := range []int{128<<10 - 2, 128<<10 - 1, 128 << 10, 128<<10 + 1, 3 << 20} {
		tail := "\necho $0 $# $BASH_SUBSHELL; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; [ -e /proc/$$/fd/3 ] || echo closed; (exit 4) || exit 7"
		command := "#" + strings.Repeat("x", size-1-len(tail)) + tail
		r := f.run(t, command)
		want := "bash 0 0\n/dev/null\n4\nclosed\n" // ls itself has its directory open
		if string(r.GetStdout().GetData()) != want || r.GetExit().GetCode() != 7 || len(r.GetStderr().GetData()) > 0 {
			t.Errorf("%d bytes: %q, stderr %q, exit %v", size, r.GetStdout().GetData(), r.GetStderr().GetData(), r.GetExit())
		}
	}
}

func TestSignalIsNamed(t *testing.T) {
	f := start(t, executor.Options{})
	for _, name := range []string{"SIGKILL", "SIGTERM", "SIGSEGV", "SIGUSR1"} {
		r := f.run(t, "kill -"+strings.TrimPrefix(name, "SIG")+" $$; sleep 5")
		if r.GetExit().GetSignal() != name || r.GetExit().GetCode() != 0 || r.GetTimedOut() {
			t.Errorf("%s: got %v", name, r.GetExit())
		}
	}
}

func TestWorkingDirectory(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(top, `a b`, `日本 $x'q"`)
	for _, dir := range []string{filepath.Join(top, "session", "sub"), filepath.Join(top, "default"), odd} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(top, "session"), filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := start(t, executor.Options{Cwd: filepath.Join(top, "default")})
	session := filepath.Join(top, "session")
	for _, test := range []struct{ name, workdir, session, pwd, err string }{
		{"an absolute one as it is", "/", session, "/", ""},
		{"a relative one against the session's", "sub", session, session + "/sub", ""},
		{"none: the session's", "", session, session, ""},
		{"no session: the executor's", "", "", top + "/default", ""},
		{"symbolic links kept", "", top + "/link", top + "/link", ""},
		{"odd characters", odd, "", odd, ""},
		{"missing", top + "/gone", session, "", "working directory does not exist: " + top + "/gone"},
		{"a relative one that is missing", "gone", session, "", "working directory does not exist: " + session + "/gone"},
		{"a file", top + "/file", "", "", "working directory is not a directory: " + top + "/file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			command := &bashv1.Command{Command: `pwd; [ "$PWD" -ef . ] && pwd -P`, Workdir: test.workdir, SessionCwd: test.session}
			r, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: command}, nil)
			if test.err != "" {
				if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != test.err {
					t.Errorf("got %v", err)
				}
				return
			}
			physical, _ := filepath.EvalSymlinks(test.pwd)
			if err != nil || string(r.GetStdout().GetData()) != test.pwd+"\n"+physical+"\n" {
				t.Errorf("got %q, %v", r.GetStdout().GetData(), err)
			}
		})
	}
}

func TestDeletedWorkingDirectoryIsNamedAndNotForEver(t *testing.T) {
	f := start(t, executor.Options{})
	cwd := filepath.Join(t.TempDir(), "cwd")
	in := func(command, workdir string) (*bashv1.Result, error) {
		return f.Run(t.Context(), &bashv1.RunRequest_Run{
			Command: &bashv1.Command{Command: command, SessionCwd: cwd, Workdir: workdir},
		}, nil)
	}
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := in(`rm -rf "$PWD"`, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := in("echo a", ""); status.Convert(err).Message() != "working directory does not exist: "+cwd {
		t.Errorf("got %v", err)
	}
	if r, err := in("echo b", "/"); err != nil || string(r.GetStdout().GetData()) != "b\n" {
		t.Errorf("got %v, %v", r, err)
	}
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	if r, err := in("echo c", ""); err != nil || string(r.GetStdout().GetData()) != "c\n" {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"LANG": "de_DE.UTF-8", "PLAIN": "kept", "MY_API_KEY": "x", "client_secret": "x", "Some_Token": "x", "PGPASSWORD": "x",
		"OLD_PASSWD": "x", "AWS_CREDENTIALS": "x", "DSH_SOCKET": "x", "DSH_SESSION_ID": "another", "PLUGIN_UNIX_SOCKET_DIR": "x",
		"WANTED_TOKEN": "kept", "TERM": "xterm", "PAGER": "less",
	} {
		t.Setenv(name, value)
	}
	f := start(t, executor.Options{KeepEnv: []string{"WANTED_TOKEN"}})
	r := f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "env", SessionId: "s-1"}})
	have := map[string]string{}
	for line := range strings.Lines(string(r.GetStdout().GetData())) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		have[name] = value
	}
	for name, value := range map[string]string{
		"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "DSH_SESSION_ID": "s-1", "LANG": "de_DE.UTF-8",
		"PLAIN": "kept", "WANTED_TOKEN": "kept", "PATH": os.Getenv("PATH"),
	} {
		if have[name] != value {
			t.Errorf("%s=%q, want %q", name, have[name], value)
		}
	}
	for name := range have {
		switch {
		case name == "DSH_SESSION_ID", name == "DSH_TASK_MARK":
		case strings.HasPrefix(name, "DSH_"), strings.HasPrefix(name, "PLUGIN_"), strings.HasSuffix(name, "_KEY"),
			name == "client_secret", name == "Some_Token", name == "PGPASSWORD", name == "OLD_PASSWD", name == "AWS_CREDENTIALS":
			t.Errorf("%s is inherited", name)
		}
	}
	if r := f.run(t, "echo ${DSH_SESSION_ID-none}"); string(r.GetStdout().GetData()) != "none\n" {
		t.Errorf("without a session: %q", r.GetStdout().GetData())
	}
}

func TestCommandsThatNoShellCanRun(t *testing.T) {
	f := start(t, executor.Options{})
	for _, command := range []*bashv1.Command{{Command: "echo a\x00b"}, {}, nil, {Command: "true", Workdir: "/\x00"}} {
		if _, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: command}, nil); status.Code(err) != codes.InvalidArgument {
			t.Errorf("run %v: %v", command, err)
		}
		if _, err := f.Start(t.Context(), command); status.Code(err) != codes.InvalidArgument {
			t.Errorf("start %v: %v", command, err)
		}
	}
	if claims := f.host.Claims(); len(claims) > 0 {
		t.Errorf("claims were made: %v", claims)
	}
}

func TestMissingShellIsNamed(t *testing.T) {
	f := start(t, executor.Options{Shell: "/nowhere/bash"})
	_, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "true"}}, nil)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "/nowhere/bash") {
		t.Errorf("got %v", err)
	}
}

func TestPolicyDecidesHowACommandIsStarted(t *testing.T) {
	f := start(t, executor.Options{Policy: func(p *executor.Process) error {
		if p.Command.GetCommand() == "forbidden" {
			return status.Error(codes.PermissionDenied, "not here")
		}
		p.Argv = append([]string{"env", "CONFINED=yes", p.Path}, p.Argv[1:]...)
		p.Path = "/usr/bin/env"
		p.Notes = append(p.Notes, "confined")
		return nil
	}})
	r := f.run(t, "echo $CONFINED; kill -TERM 0; sleep 5")
	if string(r.GetStdout().GetData()) != "yes\n" || r.GetExit().GetSignal() != "SIGTERM" || len(r.GetNotes()) != 1 || r.GetNotes()[0] != "confined" {
		t.Errorf("got %v", r)
	}
	_, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "forbidden"}}, nil)
	if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "not here" {
		t.Errorf("got %v", err)
	}
}

func TestTimeLimit(t *testing.T) {
	f := start(t, executor.Options{Timeout: 300 * time.Millisecond, MaxTimeout: 500 * time.Millisecond})
	sleep := sleeper()
	for _, test := range []struct {
		name           string
		asked, inForce int64
	}{{"the default", 0, 300}, {"its own", 50, 50}, {"clamped", 1 << 40, 500}} {
		t.Run(test.name, func(t *testing.T) {
			r := f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "echo a; sleep " + sleep}, TimeoutMs: test.asked})
			if !r.GetTimedOut() || r.GetTimeoutMs() != test.inForce || r.GetExit().GetSignal() != "SIGTERM" || r.GetAborted() {
				t.Errorf("got %v", r)
			}
			if string(r.GetStdout().GetData()) != "a\n" || running("sleep", sleep) {
				t.Errorf("got %q, still running: %v", r.GetStdout().GetData(), running("sleep", sleep))
			}
		})
	}
	r := f.run(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep .01; done")
	if !r.GetTimedOut() || r.GetExit().GetSignal() != "" || r.GetExit().GetCode() != 0 || string(r.GetStdout().GetData()) != "ready\nbye\n" {
		t.Errorf("trapped: got %v", r)
	}
	defaults, err := f.Defaults(t.Context())
	cwd, _ := os.Getwd()
	if err != nil || defaults.GetTimeoutMs() != 300 || defaults.GetMaxTimeoutMs() != 500 || defaults.GetCwd() != cwd {
		t.Errorf("defaults: %v, %v", defaults, err)
	}
}

// An executor that was stopped past the time limit finds both due: the command that had finished has its result.
func TestResultThatIsThereBeatsTheTimer(t *testing.T) {
	child := startChild(t, `sleep .3; echo ok`, 600*time.Millisecond)
	child.waitFor(t, "started")
	if err := child.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(1200 * time.Millisecond)
	if err := child.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	child.waitFor(t, `result "ok\n" timed out: false`)
}
