package executortest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

var commandRules = []rule{
	{"bash -c, byte for byte", byteForByte},
	{"commands larger than one argument may be work too", largerThanAnArgument},
	{"a command that no shell can run is refused", noShellCanRun},
	{"a missing shell is named", missingShell},
	{"working directory", workingDirectory},
	{"a deleted working directory is named, and not for ever", deletedDirectory},
	{"defaults", defaults},
}

func byteForByte(t *testing.T, e Executor) {
	i := e.start(t, nil)
	for _, test := range []struct {
		name, command, stdout string
		code                  int32
	}{
		{"a heredoc without a final newline", "cat <<'E'\nx\nE", "x\n", 0},
		{"a heredoc into a file has nothing more", "cat >f <<'E'\nx\nE\ncat f; rm f", "x\n", 0},
		{"a comment at the end", "echo hi # c", "hi\n", 0},
		{"stdin is /dev/null", "cat; echo rc=$?; readlink /proc/self/fd/0", "rc=0\n/dev/null\n", 0},
		{"no arguments", "echo $#", "0\n", 0},
		{"plain status of a pipe", "yes | head -n1", "y\n", 0},
		{"the status of each in a pipe", "(exit 3)|cat; echo ${PIPESTATUS[0]}", "3\n", 0},
		{"order of streams that share a pipe", "for i in 1 2 3; do echo o$i; echo e$i >&2; done 2>&1", "o1\ne1\no2\ne2\no3\ne3\n", 0},
		{"not a login shell", "shopt -q login_shell || echo none; echo $-", "none\nhBc\n", 0},
		{"no controlling terminal", "{ : >/dev/tty; } 2>/dev/null && echo tty || echo notty", "notty\n", 0},
		{"its own session and process group", `read -r _ _ _ _ group session _ </proc/$$/stat; [ $$ = $group ] && [ $$ = $session ] && echo leads`, "leads\n", 0},
		{"no file but the three is open", `ls /proc/self/fd | tr '\n' ' '`, "0 1 2 3 ", 0}, // ls has the directory open
		{"a failing last command", "false", "", 1},
		{"a command that is not there", "nosuchcommand-x 2>/dev/null", "", 127},
		{"a syntax error", "if 2>/dev/null", "", 2},
		{"bytes that are no text", `printf '\xff\xfe'`, "\xff\xfe", 0},
		{"a new shell each time", "echo $v; cd /; v=1", "\n", 0},
		{"a new shell each time, again", `echo $v; [ "$PWD" != / ] && echo back`, "\nback\n", 0},
	} {
		t.Run(test.name, func(t *testing.T) { expectOut(t, i.run(t, test.command), test.stdout, test.code) })
	}
}

func largerThanAnArgument(t *testing.T, e Executor) {
	i := e.start(t, nil)
	for _, size := range []int{128<<10 - 2, 128<<10 - 1, 128 << 10, 128<<10 + 1, 3 << 20} {
		tail := "\necho $# $BASH_SUBSHELL; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; [ -e /proc/$$/fd/3 ] || echo closed; (exit 4) || exit 7"
		command := "#" + strings.Repeat("x", size-1-len(tail)) + tail
		expectOut(t, i.run(t, command), "0 0\n/dev/null\n4\nclosed\n", 7) // ls itself has its directory open
	}
}

func noShellCanRun(t *testing.T, e Executor) {
	i := e.start(t, nil)
	for _, command := range []*bashv1.Command{{Command: "echo a\x00b"}, {}, nil, {Command: "true", Workdir: "/\x00"}} {
		if _, err := i.Run(t.Context(), &bashv1.RunRequest_Run{Command: command}, nil); status.Code(err) != codes.InvalidArgument {
			t.Errorf("run %v: %v", command, err)
		}
		if _, err := i.Start(t.Context(), command); status.Code(err) != codes.InvalidArgument {
			t.Errorf("start %v: %v", command, err)
		}
	}
	if tasks, err := i.List(t.Context()); err != nil || len(tasks) > 0 {
		t.Errorf("got %v, %v", tasks, err)
	}
}

func missingShell(t *testing.T, e Executor) {
	i := e.start(t, config{"shell": "/nowhere/bash"})
	err := i.runError(t, i.command("s-1", "true"))
	if status.Code(err) != codes.FailedPrecondition || !strings.HasPrefix(status.Convert(err).Message(), "shell not found: ") ||
		!strings.Contains(status.Convert(err).Message(), "/nowhere/bash") {
		t.Errorf("got %v", err)
	}
}

func workingDirectory(t *testing.T, e Executor) {
	i := e.start(t, nil)
	top := i.dir
	odd := filepath.Join(top, `a b`, `日本 $x'q"`)
	for _, dir := range []string{filepath.Join(top, "session", "sub"), odd} {
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
	session := filepath.Join(top, "session")
	for _, test := range []struct{ name, workdir, session, pwd, err string }{
		{"an absolute workdir as it is", "/", session, "/", ""},
		{"a relative one against the session's cwd", "sub", session, session + "/sub", ""},
		{"none: the session's cwd", "", session, session, ""},
		{"no session: the executor's config", "", "", top, ""},
		{"PWD is that path, symlinks kept", "", top + "/link", top + "/link", ""},
		{"any characters", odd, "", odd, ""},
		{"a missing one is named", top + "/gone", session, "", "working directory does not exist: " + top + "/gone"},
		{"a relative one that is missing is named", "gone", session, "", "working directory does not exist: " + session + "/gone"},
		{"a file is named", top + "/file", "", "", "working directory is not a directory: " + top + "/file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			command := &bashv1.Command{Command: `pwd; [ "$PWD" -ef . ] && pwd -P`, Workdir: test.workdir, SessionCwd: test.session}
			if test.err != "" {
				expectError(t, i.runError(t, command), codes.FailedPrecondition, test.err)
				return
			}
			physical, err := filepath.EvalSymlinks(test.pwd)
			if err != nil {
				t.Fatal(err)
			}
			r, err := i.Run(t.Context(), &bashv1.RunRequest_Run{Command: command}, nil)
			if err != nil {
				t.Fatal(err)
			}
			expectOut(t, r, test.pwd+"\n"+physical+"\n", 0)
		})
	}
}

func deletedDirectory(t *testing.T, e Executor) {
	i := e.start(t, nil)
	cwd := filepath.Join(i.dir, "cwd")
	in := func(text, workdir string) *bashv1.Command {
		return &bashv1.Command{Command: text, SessionCwd: cwd, Workdir: workdir}
	}
	echo := func(text, workdir string) {
		t.Helper()
		r, err := i.Run(t.Context(), &bashv1.RunRequest_Run{Command: in("echo "+text, workdir)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		expectOut(t, r, text+"\n", 0)
	}
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	echo("first", "")
	if err := os.Remove(cwd); err != nil {
		t.Fatal(err)
	}
	expectError(t, i.runError(t, in("echo a", "")), codes.FailedPrecondition, "working directory does not exist: "+cwd)
	echo("elsewhere", "/")
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	echo("again", "")
}

func defaults(t *testing.T, e Executor) {
	i := e.start(t, nil)
	got, err := i.Defaults(t.Context())
	if want := (&bashv1.DefaultsResponse{TimeoutMs: 120000, MaxTimeoutMs: 600000, Cwd: i.dir}); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

var environmentRules = []rule{
	{"the host's, minus secrets and what is dsh's, plus what says that nobody watches", environment},
	{"without a session there is no DSH_SESSION_ID", noSession},
	{"the locale is the host's", locale},
}

func environment(t *testing.T, e Executor) {
	for name, value := range map[string]string{
		"LANG": "de_DE.UTF-8", "PLAIN": "kept", "MY_API_KEY": "x", "client_secret": "x", "Some_Token": "x", "PGPASSWORD": "x",
		"OLD_PASSWD": "x", "AWS_CREDENTIALS": "x", "DSH_SOCKET": "x", "DSH_SESSION_ID": "another", "PLUGIN_UNIX_SOCKET_DIR": "x",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "x", "GIT_CONFIG_VALUE_0": "x", // a git that has a part of them refuses to run
		"WANTED_TOKEN": "kept", "TERM": "xterm", "PAGER": "less", "GIT_PAGER": "less", "NO_COLOR": "",
	} {
		t.Setenv(name, value)
	}
	i := e.start(t, config{"keepEnv": []string{"WANTED_TOKEN"}})
	have := map[string]string{}
	for line := range strings.Lines(string(i.run(t, "env").GetStdout().GetData())) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		have[name] = value
	}
	for name, value := range map[string]string{
		"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "DSH_SESSION_ID": "s-1", "LANG": "de_DE.UTF-8",
		"PLAIN": "kept", "WANTED_TOKEN": "kept", "PATH": os.Getenv("PATH"), "PWD": i.dir,
	} {
		if have[name] != value {
			t.Errorf("%s=%q, want %q", name, have[name], value)
		}
	}
	for name, value := range have {
		upper := strings.ToUpper(name)
		switch {
		case name == "DSH_SESSION_ID", name == "DSH_TASK_MARK", name == "WANTED_TOKEN":
		case value == "x", strings.HasPrefix(upper, "GIT_CONFIG_"), strings.HasPrefix(upper, "DSH_"), strings.HasPrefix(upper, "PLUGIN_"):
			t.Errorf("%s is inherited", name)
		}
	}
}

func noSession(t *testing.T, e Executor) {
	i := e.start(t, nil)
	r, err := i.Run(t.Context(), &bashv1.RunRequest_Run{Command: i.command("", "echo ${DSH_SESSION_ID-none}")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	expectOut(t, r, "none\n", 0)
}

func locale(t *testing.T, e Executor) {
	t.Setenv("LANG", "de_DE.UTF-8")
	t.Setenv("NIX_LD", "/n")
	for _, name := range []string{"LC_ALL", "LC_CTYPE"} {
		t.Setenv(name, "") // restores it at the end
		os.Unsetenv(name)
	}
	i := e.start(t, nil)
	expectOut(t, i.run(t, `echo "$LANG,${LC_ALL-unset},$NIX_LD é"`), "de_DE.UTF-8,unset,/n é\n", 0)
}

var endRules = []rule{
	{"a non-zero exit, a timeout and a signal are reported, not errors", reported},
	{"a result says what the command printed, how it ended and how long it took", result},
	{"default limit, own limit, clamped to the maximum", timeLimit},
	{"a command that traps SIGTERM and exits 0 after the timer has timed out", trapped},
	{"a result that is already there beats a timer that is also due", resultBeatsTimer},
	{"the call ends when the shell ends", endsWithShell},
	{"the pipe of a child left behind keeps being emptied", keptEmpty},
}

func reported(t *testing.T, e Executor) {
	i := e.start(t, nil)
	for _, name := range []string{"KILL", "TERM", "SEGV", "USR1"} {
		r := i.run(t, "kill -"+name+" $$; sleep 5")
		if r.GetExit().GetSignal() != "SIG"+name || r.GetExit().GetCode() != 0 || r.GetTimedOut() || r.GetAborted() {
			t.Errorf("%s: got %v", name, r)
		}
	}
}

func result(t *testing.T, e Executor) {
	i := e.start(t, nil)
	r := i.run(t, "echo out; echo err >&2; sleep .1; exit 5")
	if string(r.GetStdout().GetData()) != "out\n" || string(r.GetStderr().GetData()) != "err\n" || r.GetExit().GetCode() != 5 || r.GetExit().GetSignal() != "" {
		t.Errorf("got %v", r)
	}
	if r.GetTimedOut() || r.GetAborted() || r.GetTimeoutMs() != 120000 || r.GetDurationUs() < 100_000 {
		t.Errorf("got %v", r)
	}
}

func timeLimit(t *testing.T, e Executor) {
	i := e.start(t, config{"timeoutMs": 300, "maxTimeoutMs": 500})
	for _, test := range []struct {
		name           string
		asked, inForce int64
	}{{"the default", 0, 300}, {"its own", 50, 50}, {"clamped", 1 << 40, 500}} {
		t.Run(test.name, func(t *testing.T) {
			sleep := seconds()
			r := i.runFor(t, "sleep "+sleep, test.asked)
			if !r.GetTimedOut() || r.GetTimeoutMs() != test.inForce || r.GetExit().GetSignal() != "SIGTERM" || r.GetAborted() {
				t.Errorf("got %v", r)
			}
			if left := running("sleep", sleep); len(left) > 0 {
				t.Errorf("still running: %v", left)
			}
		})
	}
}

func trapped(t *testing.T, e Executor) {
	r := e.start(t, nil).runFor(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep .01; done", 400)
	expectOut(t, r, "ready\nbye\n", 0)
	if !r.GetTimedOut() || r.GetTimeoutMs() != 400 {
		t.Errorf("got %v", r)
	}
}

func endsWithShell(t *testing.T, e Executor) {
	i := e.start(t, nil)
	for _, test := range []struct{ name, command, want string }{
		{"a silent child holds the pipes", "sleep SLEEP & echo hi", "hi\n"},
		{"a writing child holds the pipes", "(while :; do echo more || exit; done) 2>/dev/null & sleep SLEEP & sleep .1; exit 3", "more\n"},
		{"all that was in the pipe is read", "seq 1 20000 | tail -c 60000; sleep SLEEP &", "\n20000\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sleep := seconds()
			began := time.Now()
			r := i.run(t, strings.ReplaceAll(test.command, "SLEEP", sleep))
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
			if !strings.HasSuffix(string(r.GetStdout().GetData()), test.want) {
				t.Errorf("got %d bytes", len(r.GetStdout().GetData()))
			}
			eventually(t, "the child running", func() bool { return len(running("sleep", sleep)) > 0 })
		})
	}
}

// The child writes more than a pipe takes after the call's end and must not block on it.
func keptEmpty(t *testing.T, e Executor) {
	i := e.start(t, nil)
	i.run(t, "(sleep .3; head -c 5000000 /dev/zero; echo x >done) &")
	eventually(t, "the child done", func() bool { _, err := os.Stat(filepath.Join(i.dir, "done")); return err == nil })
}
