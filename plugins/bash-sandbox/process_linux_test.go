package bashsandbox_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/plugins/bash-sandbox/launch"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// connect connects to a TCP listener and prints what it says.
func connect(port int) string { return fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d && cat <&3", port) }

func TestNetwork(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("hello"))
			conn.Close()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	for _, mode := range []string{"read-only", "workspace-write", "full"} {
		t.Run(mode, func(t *testing.T) {
			f := start(t, map[string]any{"mode": mode})
			f.unable(t, t.TempDir(), connect(port))
			f.unable(t, t.TempDir(), "echo a > /dev/udp/192.0.2.1/9")
			f.ok(t, t.TempDir(), "echo a > /dev/udp/127.0.0.1/9") // the command's own loopback interface
			f = start(t, map[string]any{"mode": mode, "network": true})
			if got := f.ok(t, t.TempDir(), connect(port)); got != "hello" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestOtherProgramsSocketsCannotBeReached(t *testing.T) {
	runtimeDir, err := os.MkdirTemp("", "dsh") // t.TempDir can be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(runtimeDir)
	agent, err := net.Listen("unix", filepath.Join(runtimeDir, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	t.Setenv("XDG_RUNTIME_DIR", runtimeDir)
	workspace := t.TempDir()
	reach := fmt.Sprintf("%s reach %s", os.Args[0], filepath.Join(runtimeDir, "agent"))
	if got := start(t, map[string]any{"mode": "full", "network": true}).ok(t, workspace, reach); !strings.HasPrefix(got, "reached\n") {
		t.Errorf("unconfined: %q", got)
	}
	f := start(t, map[string]any{"network": true})
	if r := f.in(t, workspace, reach); strings.Contains(stdout(r), "reached\n") || !strings.Contains(stdout(r), "connect") {
		t.Errorf("confined: %q", stdout(r))
	}
}

func TestBackgroundTasksAreConfined(t *testing.T) {
	outside, workspace := t.TempDir(), t.TempDir()
	f := start(t, map[string]any{})
	id, err := f.Start(t.Context(), session(workspace, "echo a > file; echo a > "+outside+"/file"))
	if err != nil {
		t.Fatal(err)
	}
	var said string
	eventually(t, "the task over", func() bool {
		r, err := f.Read(t.Context(), id, "session of "+workspace)
		if err != nil {
			t.Fatal(err)
		}
		said += string(r.GetStderr())
		return r.GetStatus().GetState() == bashv1.TaskStatus_STATE_COMPLETED
	})
	if !strings.Contains(said, "Permission denied") {
		t.Errorf("said %q", said)
	}
	mustContain(t, filepath.Join(workspace, "file"), "a\n")
	mustNotExist(t, filepath.Join(outside, "file"))
}

func TestAFailureOfTheLauncherIsNoResult(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			shell := write(t, filepath.Join(dir, "shell"), "#!/does/not/exist\n")
			if err := os.Chmod(shell, 0o755); err != nil {
				t.Fatal(err)
			}
			f := start(t, with(config, map[string]any{"shell": shell}))
			want := "sandbox launcher: start " + shell + ": no such file or directory"
			_, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: session(dir, "true")}, nil)
			if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != want {
				t.Errorf("got %v", err)
			}
			id, err := f.Start(t.Context(), session(dir, "true"))
			if err != nil {
				t.Fatal(err)
			}
			var said string
			eventually(t, "the task over", func() bool {
				r, err := f.Read(t.Context(), id, "session of "+dir)
				if err != nil {
					t.Fatal(err)
				}
				said += string(r.GetStderr())
				return r.GetStatus().GetState() == bashv1.TaskStatus_STATE_KILLED && r.GetStatus().GetExit() == nil
			})
			if said != want+"\n" {
				t.Errorf("the task said %q", said)
			}
		})
	}
}

// What a launcher initialises is most of what a command costs.
func TestTheLauncherRunsBeforeTheProgramIsInitialised(t *testing.T) {
	var trace strings.Builder
	cmd := exec.Cmd{
		Path: os.Args[0], Args: []string{launch.Name, "report=2", "dir=/", "exec=/bin/sh", "sh", "-c", "echo ran"},
		Env: []string{"GODEBUG=inittrace=1"}, Stderr: &trace,
	}
	if out, err := cmd.Output(); err != nil || string(out) != "ran\n" {
		t.Fatalf("%q, %v", out, err)
	}
	if !strings.Contains(trace.String(), "init os @") {
		t.Fatalf("no trace: %s", trace.String())
	}
	for _, late := range []string{"google.golang.org/grpc", "google.golang.org/protobuf/reflect/protodesc", "github.com/hashicorp/go-plugin"} {
		if strings.Contains(trace.String(), "init "+late+" @") {
			t.Errorf("%s was initialised before", late)
		}
	}
}

func TestACommandMaySayWhatTheLauncherSays(t *testing.T) {
	f := start(t, map[string]any{})
	r := f.run(t, "echo sandbox launcher: broken >&2; exit 126")
	if r.GetExit().GetCode() != 126 || stderr(r) != "sandbox launcher: broken\n" || len(r.GetNotes()) > 0 {
		t.Errorf("got %v", r)
	}
}

func TestALongCommandIsConfined(t *testing.T) {
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			outside, workspace := t.TempDir(), t.TempDir()
			f := start(t, with(config, nil))
			filler := ": " + strings.Repeat("x", 300<<10) + "\n"
			if got := f.ok(t, workspace, filler+"echo a > file; cat file; ls /proc/self/fd | wc -w"); got != "a\n4\n" {
				t.Errorf("got %q", got)
			}
			f.refused(t, workspace, filler+"echo a > "+outside+"/file")
		})
	}
}

func TestACommandHasNothingOfItsExecutor(t *testing.T) {
	t.Setenv("DSH_SOMETHING", "1")
	t.Setenv("MY_TOKEN", "1")
	dir := t.TempDir()
	for name, config := range both {
		t.Run(name, func(t *testing.T) {
			f := start(t, with(config, nil))
			got := f.ok(t, dir, `ls /proc/self/fd | tr '\n' ' '; echo; env | grep -E '^(DSH_|MY_TOKEN|TEST_)' | sed 's/=.*//' | sort; pwd`)
			if want := "0 1 2 3 \nDSH_SESSION_ID\nDSH_TASK_MARK\n" + dir + "\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			pid := os.Getpid()
			f.unable(t, dir, fmt.Sprintf("cat /proc/%d/environ", pid))
			f.unable(t, dir, fmt.Sprintf("ls /proc/%d/root/ /proc/%d/fd/", pid, pid))
			f.unable(t, dir, fmt.Sprintf("kill -9 %d", pid))
			f.unable(t, dir, "mount -t tmpfs none "+dir)
			for _, device := range []string{"/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/nvme0n1"} {
				f.unable(t, dir, "dd if="+device+" bs=1 count=1 iflag=nonblock")
			}
		})
	}
}

func TestKillReachesThroughTheLauncher(t *testing.T) {
	f := start(t, map[string]any{"killGraceMs": 200})
	alive := func(seconds string) bool { return exec.Command("pgrep", "-fx", "sleep "+seconds).Run() == nil }
	t.Run("timeout", func(t *testing.T) {
		r := f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "trap '' TERM; setsid sleep 7301 & sleep 7301"}, TimeoutMs: 700})
		if !r.GetTimedOut() || r.GetExit().GetSignal() != "SIGKILL" || alive("7301") {
			t.Errorf("got %v, alive: %v", r, alive("7301"))
		}
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for !alive("7302") && ctx.Err() == nil {
				runtime.Gosched()
			}
			cancel()
		}()
		r, err := f.Run(ctx, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "sleep 7302"}}, nil)
		if err != nil || !r.GetAborted() || alive("7302") {
			t.Errorf("got %v, %v, alive: %v", r, err, alive("7302"))
		}
		<-watched
	})
	t.Run("at once", func(t *testing.T) {
		for range 20 {
			r := f.runWith(t, &bashv1.RunRequest_Run{Command: &bashv1.Command{Command: "sleep 7303"}, TimeoutMs: 1})
			if !r.GetTimedOut() || r.GetExit().GetSignal() == "" {
				t.Errorf("got %v", r)
			}
		}
	})
	t.Run("stop", func(t *testing.T) {
		if _, err := f.Start(t.Context(), &bashv1.Command{Command: "(setsid sleep 7304 &) ; sleep 7304"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the task running", func() bool { return alive("7304") })
		f.instance.Stop()
		if alive("7304") {
			t.Error("something outlived the executor")
		}
	})
}

func TestNothingSurvivesAnExecutorThatIsKilled(t *testing.T) {
	temp := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), envServe+"=touch $TMPDIR/file; (setsid sleep 7311 &); sleep 7311; sleep 7311", "TMPDIR="+temp, "PWD="+cmd.Dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	alive := func() bool { return exec.Command("pgrep", "-fx", "sleep 7311").Run() == nil }
	eventually(t, "the command running", alive)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "nothing left", func() bool { return !alive() })
	eventually(t, "its files gone", func() bool {
		left, err := filepath.Glob(filepath.Join(temp, "dsh-bash-*"))
		return err == nil && len(left) == 0
	})
}

func TestPseudoTerminalsAndSharedMemory(t *testing.T) {
	f := start(t, map[string]any{})
	dir := t.TempDir()
	if got := f.ok(t, dir, "script -qec 'test -t 0 && echo terminal' /dev/null"); !strings.Contains(got, "terminal") {
		t.Errorf("got %q", got)
	}
	f.ok(t, dir, "echo a > /dev/shm/mine")
	mustNotExist(t, "/dev/shm/mine")
}

func TestManyAtOnce(t *testing.T) {
	f := start(t, map[string]any{})
	results := make(chan string)
	for i := range 20 {
		dir := t.TempDir()
		go func() {
			r, err := f.Run(t.Context(), &bashv1.RunRequest_Run{Command: session(dir, "echo $PPID-"+strconv.Itoa(i)+" > file && cat file | cut -d- -f2")}, nil)
			if err != nil {
				results <- err.Error()
				return
			}
			results <- stdout(r)
		}()
	}
	limit := time.After(time.Minute)
	seen := map[string]bool{}
	for range 20 {
		select {
		case r := <-results:
			seen[r] = true
		case <-limit:
			t.Fatal("not all came back")
		}
	}
	for i := range 20 {
		if !seen[strconv.Itoa(i)+"\n"] {
			t.Errorf("missing %d in %v", i, seen)
		}
	}
}
