package executor_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/pluginv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

func TestRetiredInstanceLetsGoOfTasksThatAreRead(t *testing.T) {
	f := start(t, executor.Options{})
	before := f.task(t, "", "echo before")
	eventually(t, "its notice", func() bool { return len(f.events.all()) == 1 })
	running := f.task(t, "", "sleep .3; echo after")
	f.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	if stdout, _, _ := f.readAll(t, before, ""); stdout != "before\n" {
		t.Errorf("got %q", stdout)
	}
	eventually(t, "the first claim released", func() bool { return slices.Equal(f.host.Claims(), []string{running}) })
	if stdout, _, _ := f.readAll(t, running, ""); stdout != "after\n" {
		t.Errorf("got %q", stdout)
	}
	eventually(t, "both claims released", func() bool { return len(f.host.Claims()) == 0 })
	if len(f.events.all()) != 2 {
		t.Errorf("got %v", f.events.all())
	}
}

func TestFinishedTasksAreForgottenWhenThereAreTooMany(t *testing.T) {
	f := start(t, executor.Options{})
	const many = 1020
	var starting sync.WaitGroup
	for range 8 {
		starting.Go(func() {
			for range many / 8 {
				f.task(t, "", "echo x")
			}
		})
	}
	starting.Wait()
	last := f.task(t, "", "echo last")
	eventually(t, "the oldest forgotten", func() bool { return len(f.host.Claims()) == 1000 })
	if stdout, _, _ := f.readAll(t, last, ""); stdout != "last\n" {
		t.Errorf("got %q", stdout)
	}
	forgotten := 0
	for i := range many {
		if _, err := f.Read(t.Context(), fmt.Sprintf("bash-%d", i+1), ""); status.Code(err) == codes.NotFound {
			forgotten++
		}
	}
	if forgotten != many+1-1000 && forgotten != many-1000 {
		t.Errorf("%d are forgotten", forgotten)
	}
}

func TestTaskWhoseEndWasReadIsNotKeptForASuccessor(t *testing.T) {
	f := start(t, executor.Options{})
	read, unread, running := f.task(t, "s-1", "true"), f.task(t, "s-1", "true"), f.task(t, "s-1", "sleep 1000")
	f.readAll(t, read, "s-1")
	eventually(t, "both told", func() bool { return len(f.events.all()) == 2 })
	last := f.task(t, "s-1", "true") // at the latest with this one
	eventually(t, "kept", func() bool {
		kept := string(f.host.LastCheckpoint())
		return !strings.Contains(kept, read) && strings.Contains(kept, unread) && strings.Contains(kept, running) && strings.Contains(kept, last)
	})
}

func TestResumedInstanceKeepsItsTasks(t *testing.T) {
	f := start(t, executor.Options{})
	finished := f.task(t, "", "echo before")
	eventually(t, "its notice", func() bool { return len(f.events.all()) == 1 })
	f.instance.Retire(pluginv1.RetireRequest_REASON_RELOAD)
	f.instance.Resume()
	young := f.task(t, "", "sleep 1000")
	if kept := string(f.host.LastCheckpoint()); !strings.Contains(kept, finished) || !strings.Contains(kept, young) {
		t.Errorf("kept with the host: %s", kept)
	}
	if stdout, _, _ := f.readAll(t, finished, ""); stdout != "before\n" {
		t.Errorf("got %q", stdout)
	}
	if claims := f.host.Claims(); len(claims) != 2 {
		t.Errorf("claims: %v", claims)
	}
}
