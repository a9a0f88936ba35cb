package executor

import (
	"fmt"
	"strings"
	"time"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// crashText is how much of the word on a crash is kept with each task that it took along.
const crashText = 500

// restore takes over what the row's last instance left: the tasks that it had lost, and when it crashed its own, which are lost
// with it. Those of an instance that did not crash still live with it, or were ended in order. It returns the tasks whose loss has
// not been told.
func (e *engine) restore() (untold []*task) {
	e.checkpoint.changes++ // this instance's, even if it is empty, replaces the one before
	for _, saved := range decodeCheckpoint(e.Restored()) {
		if saved.Lost == "" {
			if e.Crash() == "" {
				continue
			}
			saved.Lost = lostText(saved.ID, e.Row(), e.Crash(), time.Now())
		}
		t := &task{id: saved.ID, session: saved.Session, lost: saved.Lost, told: saved.Told}
		e.tasks[t.id] = t
		e.order = append(e.order, t)
		e.checkpoint.set(t.saved())
		if t.told {
			e.finished++
		} else {
			untold = append(untold, t)
		}
	}
	e.saveCheckpoint()
	return untold
}

// lostText is what reading a lost task says.
func lostText(id, row, crash string, restarted time.Time) string {
	if len(crash) > crashText {
		crash = strings.ToValidUTF8(crash[:crashText], "") + "…"
	}
	return fmt.Sprintf("task %s was lost: executor %q crashed and was restarted at %s: %s",
		id, row, restarted.UTC().Format("2006-01-02 15:04:05 MST"), crash)
}

// tellLost tells the losses, one after the other. From then on the tasks are finished ones like others.
func (e *engine) tellLost(untold []*task) {
	for _, t := range untold {
		e.publish(&bashv1.TaskFinished{TaskId: t.id, SessionId: t.session, Lost: t.lost})
		e.conclude(t)
	}
	e.saveCheckpoint()
}
