package host_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

func TestStoppingLeavesNoProcess(t *testing.T) {
	for name, stop := range map[string]func(*host.Host){"stop": (*host.Host).Stop, "kill": (*host.Host).Kill} {
		t.Run(name, func(t *testing.T) {
			o, _ := options(t, twoRows)
			h, err := host.Start(o)
			if err != nil {
				t.Fatal(err)
			}
			<-h.Settled()
			rows := h.Status()
			stop(h)
			<-h.Done()
			for _, r := range rows {
				if r.PID == 0 {
					t.Errorf("row %q never ran", r.ID)
				} else if err := syscall.Kill(r.PID, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("process %d of row %q is still there: %v", r.PID, r.ID, err)
				}
			}
		})
	}
}

func TestStoppingWhileStarting(t *testing.T) {
	o, _ := options(t, twoRows+"  - {id: slow, command: [/bin/sh, -c, 'sleep 30']}\n")
	h, err := host.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	h.Stop()
	<-h.Done()
}

func TestACallThatAStopBreaksIsNotToldOfADeath(t *testing.T) {
	h, conn, _ := run(t, "plugins:\n  - {id: shell, plugin: bash}\n")
	stream, err := bashv1.NewBashClient(conn).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	command := &bashv1.Command{Command: "wait " + filepath.Join(t.TempDir(), "ended")}
	if err := stream.Send(&bashv1.RunRequest{Request: &bashv1.RunRequest_Run_{Run: &bashv1.RunRequest_Run{Command: command}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	_, err = stream.Recv()
	if got, want := status.Convert(err).Message(), `row "shell" was stopped during the call`; got != want {
		t.Errorf("the call ended with %q, want %q", got, want)
	}
}
