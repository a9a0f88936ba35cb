package host_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/dsh-go/dsh/host"
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
