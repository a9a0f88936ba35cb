package executor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/events"
)

// crashText is how much of the word on a crash is kept with each task that it took along.
const crashText = 500

// restore takes over what the row's last instance left: the tasks that it had lost, and when it crashed its own, which are lost
// with it. Those of an instance that did not crash still live with it, or were ended in order. It returns the tasks whose loss has
// not been told.
func (e *engine) restore() (untold []*task) {
	e.checkpoint.changes++ // this instance's, even if it is empty, replaces the one before
	for _, saved := range decodeCheckpoint(e.Restored()) {
		switch {
		case saved.Lost != "":
		case saved.Elsewhere:
			e.note(saved)
			continue
		case e.Crash() == "":
			continue
		default:
			saved.Lost = lostText(saved.ID, e.Row(), e.Crash(), time.Now())
		}
		t := &task{id: saved.ID, session: saved.Session, lost: saved.Lost, told: saved.Told}
		e.enterLost(t)
		if t.told {
			e.finished++
		} else {
			untold = append(untold, t)
		}
	}
	e.saveCheckpoint()
	return untold
}

// enterLost puts a lost task among the others.
func (e *engine) enterLost(t *task) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tasks[t.id] = t
	e.order = append(e.order, t)
	e.checkpoint.set(t.saved())
}

// note remembers a task that runs in an executor which has been replaced.
func (e *engine) note(t savedTask) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tasks[t.ID] != nil { // it has ended meanwhile, and come here
		return
	}
	t.Elsewhere = true
	e.elsewhere[t.ID] = t
	e.checkpoint.set(t)
}

// forgetElsewhere is for a task that has come here, or is lost.
func (e *engine) forgetElsewhere(id string) (t savedTask, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, known = e.elsewhere[id]
	delete(e.elsewhere, id)
	return t, known
}

// claimLost tells that a task was lost with an executor that had been replaced.
func (e *engine) claimLost(_ context.Context, event *events.Event) error {
	saved, known := e.forgetElsewhere(event.GetKey())
	if !known {
		return nil
	}
	how := string(event.GetData())
	if len(how) > crashText {
		how = strings.ToValidUTF8(how[:crashText], "") + "…"
	}
	t := &task{id: saved.ID, session: saved.Session, lost: fmt.Sprintf("task %s was lost: its executor, which had been replaced, died at %s: %s",
		saved.ID, event.GetTime().AsTime().UTC().Format(lostTime), how)}
	e.enterLost(t)
	e.tellLost([]*task{t})
	return nil
}

// lostTime is how lost tasks tell the time.
const lostTime = "2006-01-02 15:04:05 MST"

// lostText is what reading a lost task says.
func lostText(id, row, crash string, restarted time.Time) string {
	if len(crash) > crashText {
		crash = strings.ToValidUTF8(crash[:crashText], "") + "…"
	}
	return fmt.Sprintf("task %s was lost: executor %q crashed and was restarted at %s: %s",
		id, row, restarted.UTC().Format(lostTime), crash)
}

// tellLost tells the losses, one after the other. From then on the tasks are finished ones like others.
func (e *engine) tellLost(untold []*task) {
	for _, t := range untold {
		e.publish(&bashv1.TaskFinished{TaskId: t.id, SessionId: t.session, Lost: t.lost})
		e.conclude(t)
	}
	e.saveCheckpoint()
}
