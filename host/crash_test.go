package host_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

func TestAProviderThatDiesIsNamedToItsCallersAndStartedAgain(t *testing.T) {
	h, conn, log := run(t, twoRows)
	before := statusOf(t, h, "shell")
	front := statusOf(t, h, "front").PID
	bash := bashv1.NewBashClient(conn)
	_, err := runBash(t.Context(), bash, "die now")
	want := `row "shell" died during the call: signal: killed; last on stderr: printed before death | about to die`
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != want {
		t.Errorf("got %v, want unavailable, %q", err, want)
	}
	waitFor(t, func() bool { return statusOf(t, h, "shell").Generation == 2 })
	if got, err := runBash(t.Context(), bash, "echo again"); err != nil || got != "again" {
		t.Errorf("a call that came while it was started again: %q, %v", got, err)
	}
	after := statusOf(t, h, "shell")
	if after.Phase != "active" || after.PID == before.PID {
		t.Errorf("got %+v, want a new process", after)
	}
	if got := statusOf(t, h, "front"); got.PID != front || got.Phase != "active" {
		t.Errorf("the dependent was touched: %+v", got)
	}
	if got, err := runBash(t.Context(), bash, "crash"); err != nil || got != "the process died: signal: killed; last on stderr: printed before death | about to die" {
		t.Errorf("the new instance was told %q, %v", got, err)
	}
	waitFor(t, func() bool { return strings.Contains(log.String(), "printed before death") })
}

func TestARowThatKeepsCrashingFailsAndTakesItsDependentsAlong(t *testing.T) {
	h, conn, _ := run(t, twoRows)
	bash := bashv1.NewBashClient(conn)
	for statusOf(t, h, "shell").Phase != "failed" {
		_, err := runBash(t.Context(), bash, "die now")
		if got := status.Convert(err).Message(); !strings.Contains(got, `row "shell"`) || !strings.Contains(got, "signal: killed") {
			t.Fatalf("a call during the crash loop: %v, want the row and how it died", err)
		}
	}
	if got, want := statusOf(t, h, "shell").Reason, "test.yaml:5: row \"shell\": crashed 5 times within 1m0s; the last time: the process died: signal: killed"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	waitFor(t, func() bool { return statusOf(t, h, "front").Phase == "pending" })
	if got, want := statusOf(t, h, "front").Reason, `needs seam "bash"; row "shell", which provides it, failed`; !strings.Contains(got, want) {
		t.Errorf("the dependent waits for %q, want %q", got, want)
	}
}

func TestCallsOfARowThatWaitsForItsRestartFailAtOnce(t *testing.T) {
	h, conn, _ := run(t, twoRows)
	bash := bashv1.NewBashClient(conn)
	for crash := range 4 { // then it waits for two seconds, so that a slow machine is in time
		waitFor(t, func() bool {
			return statusOf(t, h, "shell").Generation == crash+1 && statusOf(t, h, "shell").Phase == "active"
		})
		if _, err := runBash(t.Context(), bash, "die now"); err == nil {
			t.Fatal("it did not die")
		}
	}
	waitFor(t, func() bool { return statusOf(t, h, "shell").Phase == "restarting" })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // half of what a call is held
	defer cancel()
	_, err := runBash(ctx, bash, "echo on")
	if want := `row "shell" crashed and is started again in 2`; status.Code(err) != codes.Unavailable || !strings.HasPrefix(status.Convert(err).Message(), want) {
		t.Errorf("got %v, want unavailable, %q", err, want)
	}
}

// TestLongLinesOnStderrBlockNothing: nobody may wait for the end of such a line, or stop reading at it.
func TestLongLinesOnStderrBlockNothing(t *testing.T) {
	h, conn, _ := run(t, twoRows)
	before := statusOf(t, h, "shell")
	long := strings.Repeat("x", 200<<10)
	for n := range 100 {
		if got, err := runBash(t.Context(), bashv1.NewBashClient(conn), "complain "+long); err != nil || got != "complained" {
			t.Fatalf("call %d: %q, %v", n, got, err)
		}
	}
	if after := statusOf(t, h, "shell"); after.PID != before.PID || after.Generation != before.Generation {
		t.Errorf("got %+v, want the process %d", after, before.PID)
	}
}

// TestNoLineOnStderrHarmsTheHost: go-plugin panics at some that are almost a log entry.
func TestNoLineOnStderrHarmsTheHost(t *testing.T) {
	h, conn, log := run(t, twoRows)
	before := statusOf(t, h, "shell")
	for _, line := range []string{`{"@message":5}`, `{"@level":3,"@message":"x"}`, `{"@timestamp":[]}`} {
		if got, err := runBash(t.Context(), bashv1.NewBashClient(conn), "complain "+line); err != nil || got != "complained" {
			t.Fatalf("%s: %q, %v", line, got, err)
		}
		waitFor(t, func() bool { return strings.Contains(log.String(), fmt.Sprintf("printed: %q", line)) })
	}
	if after := statusOf(t, h, "shell"); after.PID != before.PID {
		t.Errorf("got %+v, want the process %d", after, before.PID)
	}
}
