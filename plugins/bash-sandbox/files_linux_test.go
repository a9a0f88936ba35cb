package bashsandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

const deniedNote = "[sandbox: file access denied under workspace-write mode]"

// both are the two ways in which files are confined.
var both = map[string]map[string]any{
	"with namespaces":     {},
	"with Landlock alone": {"namespaces": "off", "network": true},
}

func with(config map[string]any, more map[string]any) map[string]any {
	all := map[string]any{}
	for _, m := range []map[string]any{config, more} {
		for key, value := range m {
			all[key] = value
		}
	}
	return all
}

func stdout(r *bashv1.Result) string { return string(r.GetStdout().GetData()) }
func stderr(r *bashv1.Result) string { return string(r.GetStderr().GetData()) }

// ok runs a command that must succeed and returns what it prints.
func (f *fixture) ok(t *testing.T, dir, command string) string {
	t.Helper()
	r := f.in(t, dir, command)
	if r.GetExit().GetCode() != 0 || r.GetExit().GetSignal() != "" || len(r.GetNotes()) > 0 {
		t.Errorf("%s: %v %v\n%s", command, r.GetExit(), r.GetNotes(), stderr(r))
	}
	return stdout(r)
}

// refused runs a command that must fail because the sandbox denies it something.
func (f *fixture) refused(t *testing.T, dir, command string) {
	t.Helper()
	r := f.in(t, dir, command)
	if r.GetExit().GetCode() == 0 || len(r.GetNotes()) != 1 || r.GetNotes()[0] != deniedNote {
		t.Errorf("%s: %v %q\n%s%s", command, r.GetExit(), r.GetNotes(), stdout(r), stderr(r))
	}
}

// unable runs a command that must not succeed, for whatever reason it is told.
func (f *fixture) unable(t *testing.T, dir, command string) {
	t.Helper()
	if r := f.in(t, dir, command); r.GetExit().GetCode() == 0 {
		t.Errorf("%s succeeded: %s", command, stdout(r))
	}
}

func mustNotExist(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s: %v", path, err)
	}
}

func mustContain(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s: %q, %v, want %q", path, text, err, want)
	}
}

func TestWorkspaceWriteModeWritesTheWorkspaceAndNothingElse(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			outside, workspace := t.TempDir(), t.TempDir()
			file := write(t, filepath.Join(outside, "file"), "before")
			f := start(t, with(config, nil))
			f.ok(t, workspace, "echo a > new; mkdir -p d/e; mv new d/e/; ln -s d link; ln d/e/new hard; rm hard; : > d/e/new; mkfifo p; chmod 700 d")
			f.ok(t, workspace, "echo x > /dev/null; head -c1 /dev/zero /dev/urandom > /dev/null; cat < /dev/null; ls / /dev >/dev/null")
			for _, command := range []string{
				"echo a > OUT/new", "echo a >> OUT/file", ": > OUT/file", "truncate -s 0 OUT/file", "mkdir OUT/d", "rm OUT/file", "mv OUT/file OUT/renamed",
				"cp /etc/passwd OUT/", "mkfifo OUT/p", "ln -s a OUT/link",
			} {
				f.refused(t, workspace, strings.ReplaceAll(command, "OUT", outside))
			}
			f.unable(t, workspace, "ln "+file+" hard && echo changed > hard")
			f.unable(t, workspace, "mv "+file+" .")
			mustContain(t, file, "before")
			if entries, _ := os.ReadDir(outside); len(entries) != 1 {
				t.Errorf("outside: %v", entries)
			}
		})
	}
}

func TestLinksDoNotLeadOut(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			outside, workspace := t.TempDir(), t.TempDir()
			file := write(t, filepath.Join(outside, "file"), "before")
			if err := os.Symlink(outside, filepath.Join(workspace, "way")); err != nil {
				t.Fatal(err)
			}
			f := start(t, with(config, nil))
			f.refused(t, workspace, "echo a > way/file")
			f.refused(t, workspace, "ln -s "+file+" mine; echo a > mine")
			f.refused(t, workspace, "echo a > way/../"+filepath.Base(outside)+"/new")
			f.refused(t, workspace, "cd way && echo a > new")
			mustContain(t, file, "before")
			// A workspace that is itself named by a link is where the link leads.
			f.ok(t, filepath.Join(workspace, "way"), "echo after > file")
			mustContain(t, file, "after\n")
		})
	}
}

func TestReadOnlyModeWritesNothing(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			workspace := t.TempDir()
			write(t, filepath.Join(workspace, "file"), "text")
			f := start(t, with(config, map[string]any{"mode": "read-only"}))
			if got := f.ok(t, workspace, "cat file; echo a > /dev/null"); got != "text" {
				t.Errorf("got %q", got)
			}
			for _, command := range []string{"echo a > file", "rm file", "echo a > new", "echo a > ${TMPDIR:-/tmp}/new", "echo a > /dev/shm/dsh-new"} {
				r := f.in(t, workspace, command)
				if r.GetExit().GetCode() == 0 || fmt.Sprint(r.GetNotes()) != "[[sandbox: file access denied under read-only mode]]" {
					t.Errorf("%s: %v %q", command, r.GetExit(), r.GetNotes())
				}
			}
			mustContain(t, filepath.Join(workspace, "file"), "text")
		})
	}
}

func TestFullModeConfinesNoFiles(t *testing.T) {
	for name, network := range map[string]bool{"with network": true, "without network": false} {
		t.Run(name, func(t *testing.T) {
			home, outside := t.TempDir(), t.TempDir()
			t.Setenv("HOME", home)
			write(t, filepath.Join(home, ".ssh/id"), "secret")
			f := start(t, map[string]any{"mode": "full", "network": network})
			if got := f.ok(t, t.TempDir(), "cat ~/.ssh/id; echo a > "+outside+"/new"); got != "secret" {
				t.Errorf("got %q", got)
			}
			mustContain(t, filepath.Join(outside, "new"), "a\n")
			if r := f.run(t, "echo Permission denied >&2; exit 1"); len(r.GetNotes()) > 0 {
				t.Errorf("notes %q", r.GetNotes())
			}
		})
	}
}

func TestCredentialStoresCannotBeRead(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			home, state, workspace := t.TempDir(), t.TempDir(), t.TempDir()
			t.Setenv("HOME", home)
			t.Setenv("XDG_STATE_HOME", state)
			stores := []string{
				".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".config/gcloud/key", ".gnupg/secring", ".netrc", ".docker/config.json",
				".kube/config", ".npmrc", ".git-credentials", ".local/state/dsh/sessions/a.jsonl",
			}
			for _, store := range stores {
				write(t, filepath.Join(home, store), "the secret")
			}
			stores = append(stores, "../"+filepath.Base(state)+"/dsh/b")
			write(t, filepath.Join(state, "dsh/b"), "the secret")
			real := t.TempDir()
			write(t, filepath.Join(real, "azure/token"), "the secret")
			if err := os.Symlink(filepath.Join(real, "azure"), filepath.Join(home, ".azure")); err != nil {
				t.Fatal(err)
			}
			stores = append(stores, ".azure/token")
			if err := os.Link(filepath.Join(home, ".netrc"), filepath.Join(home, "netrc-too")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(".ssh", filepath.Join(home, "ssh-too")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(home, ".config/other/file"), "seen")
			write(t, filepath.Join(home, ".bashrc"), "seen")
			write(t, filepath.Join(home, "my/secret"), "the secret")
			f := start(t, with(config, map[string]any{"denyRead": []string{"~/my/secret"}}))
			for _, path := range append(stores, "netrc-too", "ssh-too/id_ed25519", "my/secret") {
				path = filepath.Join(home, path)
				r := f.in(t, workspace, strings.ReplaceAll(`
					cat PATH; cp PATH copy && cat copy; ln PATH linked && cat linked; cat /proc/self/root/PATH; . PATH; mv PATH moved && cat moved
					unshare -Urm sh -c 'umount PATH "$(dirname PATH)"; cat PATH'`, "PATH", path))
				if said := stdout(r) + stderr(r); strings.Contains(said, "the secret") || strings.Contains(said, "the: command not found") {
					t.Errorf("%s: %s", path, said)
				}
				mustContain(t, path, "the secret")
			}
			f.refused(t, workspace, "cat ~/.netrc")
			if got := f.ok(t, workspace, "cat ~/.config/other/file ~/.bashrc; ls -a ~ > /dev/null"); got != "seenseen" {
				t.Errorf("got %q", got)
			}
			// What comes into being later is seen by the next command, or is not if it is a store.
			write(t, filepath.Join(home, "new/file"), "seen")
			write(t, filepath.Join(home, ".pypirc"), "the secret")
			if got := f.ok(t, workspace, "cat ~/new/file"); got != "seen" {
				t.Errorf("got %q", got)
			}
			f.refused(t, workspace, "cat ~/.pypirc")
		})
	}
}

func TestAStoreCanBeAllowed(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			write(t, filepath.Join(home, ".npmrc"), "allowed")
			write(t, filepath.Join(home, ".netrc"), "denied")
			f := start(t, with(config, map[string]any{"allowRead": []string{"~/.npmrc"}}))
			if got := f.ok(t, t.TempDir(), "cat ~/.npmrc"); got != "allowed" {
				t.Errorf("got %q", got)
			}
			f.refused(t, t.TempDir(), "cat ~/.netrc")
		})
	}
}

func TestAWorkspaceThatHoldsStores(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	key := write(t, filepath.Join(home, ".ssh/id"), "the secret")
	write(t, filepath.Join(home, ".netrc"), "the secret")
	f := start(t, map[string]any{})
	f.ok(t, home, "echo a > file")
	for _, command := range []string{"cat .ssh/id", "grep secret .netrc", "mv .ssh other", "rm -f .ssh/id; ls .ssh/id", "echo a > .ssh/new", "echo a >> .netrc", "rm .netrc"} {
		f.unable(t, home, command)
	}
	mustContain(t, key, "the secret")
	f = start(t, with(both["with Landlock alone"], nil))
	_, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: session(home, "cat .ssh/id")}, nil)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "lies in "+home+", which can be written: without namespaces that cannot be enforced") {
		t.Errorf("got %v", err)
	}
	for _, workspace := range []string{"/", filepath.Join(home, ".ssh")} {
		if _, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: session(workspace, "true")}, nil); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("workspace %s: %v", workspace, err)
		}
	}
}

func TestAllowWrite(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			write(t, filepath.Join(home, ".cache/file"), "")
			f := start(t, with(config, map[string]any{"allowWrite": []string{"~/.cache"}}))
			f.ok(t, t.TempDir(), "echo a > ~/.cache/new")
			f.refused(t, t.TempDir(), "echo a > ~/new")
		})
	}
}

func TestASessionWritesItsOwnWorkspaceOnly(t *testing.T) {
	mine, theirs, plain := t.TempDir(), t.TempDir(), t.TempDir()
	f := start(t, map[string]any{"cwd": plain})
	f.ok(t, mine, "echo a > file")
	f.ok(t, theirs, "echo a > file")
	f.refused(t, mine, "echo b > "+theirs+"/file")
	f.refused(t, theirs, "echo b > "+mine+"/file")
	// The workspace is the session's, wherever the command runs.
	r := f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "echo b > file", Workdir: theirs, SessionId: "a", SessionCwd: mine}})
	if r.GetExit().GetCode() == 0 {
		t.Error("wrote the working directory outside of the workspace")
	}
	mustContain(t, filepath.Join(theirs, "file"), "a\n")
	// Without a session it is the working directory.
	if r := f.run(t, "echo a > file"); r.GetExit().GetCode() != 0 {
		t.Errorf("got %v", r)
	}
	mustContain(t, filepath.Join(plain, "file"), "a\n")
}

func TestTheTemporaryDirectoryIsTheSessionsOwn(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			mine, theirs := t.TempDir(), t.TempDir()
			f := start(t, with(config, nil))
			dir := f.ok(t, mine, `mktemp > /dev/null && echo a > $TMPDIR/file && stat -c %a $TMPDIR && printf %s $TMPDIR`)
			if dir, _ = strings.CutPrefix(dir, "700\n"); !filepath.IsAbs(dir) {
				t.Fatalf("got %q", dir)
			}
			if got := f.ok(t, mine, "cat $TMPDIR/file"); got != "a\n" {
				t.Errorf("the next command of the session finds %q", got)
			}
			f.unable(t, theirs, "cat $TMPDIR/file")
			f.refused(t, theirs, "echo b > "+dir+"/file")
			f.ok(t, mine, "mkdir $TMPDIR/closed && touch $TMPDIR/closed/file && chmod 500 $TMPDIR/closed")
			f.instance.Stop()
			mustNotExist(t, filepath.Dir(dir))
		})
	}
}

func TestWhatGitAndDshExecuteCannotBeChanged(t *testing.T) {
	workspace := t.TempDir()
	git := exec.Command("git", "init", "-q", workspace)
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config, err := os.ReadFile(filepath.Join(workspace, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(workspace, ".git/hooks")); err != nil {
		t.Fatal(err)
	}
	f := start(t, map[string]any{})
	f.ok(t, workspace, "echo a > file && git add . && git -c user.name=a -c user.email=a@b commit -qm a && git checkout -qb other && git status > /dev/null")
	for _, command := range []string{
		"echo a > .git/hooks/pre-commit", "cd .git/hooks && echo a > pre-commit", "echo a >> .git/config", "rm .git/config", "git config core.fsmonitor evil",
		"mv .git/hooks h", "mv .git g", "rm -rf .git", "mv .git/config c", "ln -sf /tmp .git/hooks && touch .git/hooks/a",
	} {
		f.unable(t, workspace, command)
	}
	mustContain(t, filepath.Join(workspace, ".git/config"), string(config))
	if hooks, err := os.ReadDir(filepath.Join(workspace, ".git/hooks")); err != nil || len(hooks) > 0 {
		t.Errorf("hooks: %v, %v", hooks, err)
	}
	write(t, filepath.Join(workspace, "dsh.yaml"), "plugins: []\n")
	f.unable(t, workspace, "echo evil > dsh.yaml")
	f.unable(t, workspace, "mv dsh.yaml d")
	worktree := t.TempDir()
	write(t, filepath.Join(worktree, ".git"), "gitdir: "+workspace+"/.git/worktrees/a\n")
	f.unable(t, worktree, "echo gitdir: evil > .git")
	f.unable(t, worktree, "rm .git")
}
