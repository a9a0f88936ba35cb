package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// keeper stands in for the host.
type keeper struct {
	began chan struct{} // gets an element with each write
	hold  chan struct{} // closed: writes go on
	fail  error

	mu     sync.Mutex
	state  []byte
	writes int
}

func newKeeper() *keeper {
	return &keeper{began: make(chan struct{}, 1000), hold: make(chan struct{})}
}

func (k *keeper) keep(_ context.Context, state []byte) error {
	k.began <- struct{}{}
	<-k.hold
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes++
	if k.fail != nil {
		return k.fail
	}
	k.state = state
	return nil
}

func (k *keeper) ids() (ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range decodeCheckpoint(k.state) {
		ids = append(ids, t.ID)
	}
	return ids
}

func TestCheckpointHasATaskWhenItsSaveReturnsAndSharesWrites(t *testing.T) {
	k := newKeeper()
	c := &checkpoint{keep: k.keep}
	const many = 500
	var starting, set sync.WaitGroup
	save := func(id string) {
		c.set(savedTask{ID: id, Session: "s"})
		set.Done()
		if err := c.save(t.Context()); err != nil || !slices.Contains(k.ids(), id) {
			t.Errorf("%s is not kept: %v", id, err)
		}
	}
	set.Add(1 + many)
	starting.Go(func() { save("bash-0") })
	<-k.began
	for n := range many {
		starting.Go(func() { save(fmt.Sprint("bash-", n+1)) })
	}
	set.Wait()
	close(k.hold)
	starting.Wait()
	if k.writes != 2 || len(k.ids()) != 1+many {
		t.Errorf("%d writes for %d tasks", k.writes, len(k.ids()))
	}
	if err := c.save(t.Context()); err != nil || k.writes != 2 {
		t.Errorf("a save without a change: %d writes, %v", k.writes, err)
	}
}

func TestCheckpointThatWasNotKeptIsTriedAgain(t *testing.T) {
	k := newKeeper()
	close(k.hold)
	k.fail = errors.New("no host")
	c := &checkpoint{keep: k.keep}
	c.set(savedTask{ID: "bash-1"})
	if err := c.save(t.Context()); !errors.Is(err, k.fail) {
		t.Errorf("got %v", err)
	}
	k.fail = nil
	if err := c.save(t.Context()); err != nil || len(k.ids()) != 1 {
		t.Errorf("got %v, kept %v", err, k.ids())
	}
}

func TestCheckpointOfARetiredInstanceIsLeftAloneUntilItResumes(t *testing.T) {
	k := newKeeper()
	close(k.hold)
	c := &checkpoint{keep: k.keep}
	c.set(savedTask{ID: "bash-1"})
	c.freeze(true)
	if err := c.save(t.Context()); err != nil || k.writes != 0 {
		t.Errorf("%d writes, %v", k.writes, err)
	}
	c.freeze(false)
	if err := c.save(t.Context()); err != nil || len(k.ids()) != 1 {
		t.Errorf("resumed: kept %v, %v", k.ids(), err)
	}
}

func TestCheckpointRemembersWhatWasSet(t *testing.T) {
	c := &checkpoint{}
	for n := range 4 {
		c.set(savedTask{ID: fmt.Sprint("bash-", n), Session: "a \"session\"\n"})
	}
	c.set(savedTask{ID: "bash-1", Session: "s", Told: true, Lost: "task bash-1 was lost"})
	c.drop("bash-2")
	c.drop("bash-9")
	want := []savedTask{
		{ID: "bash-0", Session: "a \"session\"\n"}, {ID: "bash-1", Session: "s", Told: true, Lost: "task bash-1 was lost"},
		{ID: "bash-3", Session: "a \"session\"\n"},
	}
	if got := decodeCheckpoint(c.encode()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := decodeCheckpoint([]byte("not ours\n{}\n{\"id\":\"bash-1\"}\n{\"id\":")); !slices.Equal(got, []savedTask{{ID: "bash-1"}}) {
		t.Errorf("of damaged ones: %v", got)
	}
}

func TestCheckpointIsBoundedAndKeepsTheYoungest(t *testing.T) {
	c := &checkpoint{}
	for n := range 300 {
		c.set(savedTask{ID: fmt.Sprint("bash-", n), Session: strings.Repeat("s", 10_000)})
	}
	state := c.encode()
	tasks := decodeCheckpoint(state)
	if len(state) > checkpointBytes || len(tasks) != 104 || tasks[len(tasks)-1].ID != "bash-299" || tasks[0].ID != "bash-196" {
		t.Errorf("%d bytes, %d tasks, first %s", len(state), len(tasks), tasks[0].ID)
	}
}

func TestLostTextIsBounded(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	if got, want := lostText("bash-3", "bash", "signal: killed", at), `task bash-3 was lost: executor "bash" crashed and was restarted at 2030-01-02 03:04:05 UTC: signal: killed`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := lostText("bash-3", "bash", strings.Repeat("€", 10_000), at); len(got) > 700 || !utf8.ValidString(got) || !strings.HasSuffix(got, "€…") {
		t.Errorf("got %d bytes", len(got))
	}
}
