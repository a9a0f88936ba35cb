package executor_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

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
