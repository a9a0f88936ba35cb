package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStdinIsEmptyAndNotTheEditors(t *testing.T) {
	e := newHome(t, configuration{}).start()
	session := e.session(e.h.work())
	began := time.Now()
	expect(t, e.prompt(session, run("cat; echo rc=$?")), "rc=0\n")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	cwd := e.h.work()
	results, wait := e.begin(e.session(cwd), run(gate+" & timeout 60 cat; wait; echo over"))
	atGate(t, cwd)
	var answers []<-chan answer
	for range 20 {
		answers = append(answers, e.send("session/new", map[string]any{"cwd": e.h.dir, "mcpServers": []any{}}))
	}
	for _, a := range answers {
		e.await("session/new", a)
	}
	openGate(t, cwd) // it cannot have been over before: all were answered while it ran
	wait()
	expect(t, results(), "over\n")
}

func TestACommandIsRunAsItIs(t *testing.T) {
	e := newHome(t, configuration{}).start()
	expect(t, e.prompt(e.session(e.h.work()),
		run("cat <<'E'\nx\nE"),
		run("echo hi # c"),
		run("cat >f <<'E'\nx\nE\ncat f | od -An -c"),
		run("yes | head -n1"),
		run("(exit 3)|cat; echo ${PIPESTATUS[0]}"),
		run("kill -KILL $$"),
		run("for i in 1 2; do echo o$i; echo e$i >&2; done 2>&1"),
		run("for i in 1 2; do echo o$i; echo e$i >&2; done"),
		run("true"),
	), "x\n", "hi\n", "   x  \\n\n", "y\n", "3\n", "(no output)\n[killed by signal: SIGKILL]", "o1\ne1\no2\ne2\n", "o1\no2\n[stderr]\ne1\ne2\n", "(no output)")
}

func TestADeletedWorkspaceIsNamedAndNotForEver(t *testing.T) {
	e := newHome(t, configuration{}).start()
	cwd := e.h.work()
	session := e.session(cwd)
	expect(t, e.prompt(session, run(`rm -rf "$PWD"`), run("echo a"), run("echo b", "workdir", "/")),
		"(no output)", "Error: working directory does not exist: "+cwd, "b\n")
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	expect(t, e.prompt(session, run("echo c")), "c\n")
	a := <-e.send("session/new", map[string]any{"cwd": cwd + "/gone", "mcpServers": []any{}})
	if a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("a session in a missing directory: %v", a)
	}
}

func TestAWorkspaceMayHaveAnyName(t *testing.T) {
	e := newHome(t, configuration{}).start()
	top := e.h.work()
	odd, real, link := filepath.Join(top, "a b", "日本 $x'q"), filepath.Join(top, "r"), filepath.Join(top, "l")
	for _, dir := range []string{odd, real} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	expect(t, e.prompt(e.session(odd), run("pwd")), odd+"\n")
	physical, err := filepath.EvalSymlinks(real)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, e.prompt(e.session(link), run("pwd; pwd -P")), link+"\n"+physical+"\n")
}

func TestTheEnvironmentIsTheUsersOwn(t *testing.T) {
	h := newHome(t, configuration{})
	tools := h.work()
	if err := os.WriteFile(filepath.Join(tools, "mytool"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "LANG=de_DE.UTF-8", "NIX_LD=/n", "PATH="+tools+":"+os.Getenv("PATH"))
	e := h.start()
	expect(t, e.prompt(e.session(h.work()), run("echo $LANG,$LC_ALL,$NIX_LD; command -v mytool")), "de_DE.UTF-8,,/n\n"+tools+"/mytool\n")
}

func TestCharactersSurviveAnEmptyEnvironment(t *testing.T) {
	e := newHome(t, configuration{bare: true}).start()
	expect(t, e.prompt(e.session(e.h.work()), run("echo é")), "é\n")
}

func TestMalformedArgumentsAreTheCallsError(t *testing.T) {
	h := newHome(t, configuration{})
	cwd := h.work()
	e := h.start()
	session := e.session(cwd)
	results := e.prompt(session,
		call{"bash", `{"command":"touch ran`},
		call{"bash", ""},
		call{"bash", `{"command":"touch ran\u0000b","description":"Make a file"}`},
		call{"nope", "{}"},
		run("ls; echo ok"))
	if want := `Error: invalid arguments: "arguments" must be an object`; len(results) == 0 || !strings.HasPrefix(results[0], want) {
		t.Fatalf("got %q, want first %q", results, want)
	}
	expect(t, results[1:],
		`Error: invalid arguments: missing required property "command"; missing required property "description"`,
		"Error: invalid command: expected a non-empty string",
		`Error: unknown tool "nope"`,
		"ok\n")
	e.stop()
	e = h.start()
	e.load(session, cwd) // the editor and the model are strict about what is replayed
	expect(t, e.prompt(session, run("echo again")), "again\n")
}
