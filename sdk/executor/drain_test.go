package executor

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipedCommand is a command without a process, and the writing ends of its pipes.
func pipedCommand(t *testing.T) (c *command, stdout, stderr int) {
	t.Helper()
	c = &command{engine: &engine{outputs: map[*output]struct{}{}}}
	ends := [2]int{}
	for i, o := range []**output{&c.stdout, &c.stderr} {
		r, w, err := newPipe()
		if err != nil {
			t.Fatal(err)
		}
		*o = &output{stream: stream{limit: 1000}, index: i, pipe: r, drained: make(chan struct{})}
		ends[i] = w
	}
	return c, ends[0], ends[1]
}

// On a busy machine the readers may get to run long after the shell's end. The pipe is held open by a child.
func TestDrainWaitsForReadersThatAreLate(t *testing.T) {
	c, stdout, stderr := pipedCommand(t)
	defer unix.Close(stdout)
	defer unix.Close(stderr)
	if _, err := unix.Write(stdout, []byte("x")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		c.drain()
		close(done)
	}()
	select {
	case <-done:
		t.Error("it did not wait")
	case <-time.After(300 * time.Millisecond):
	}
	reading := make(chan struct{}, 2)
	for _, o := range []*output{c.stdout, c.stderr} {
		go func() {
			c.pump(o)
			reading <- struct{}{}
		}()
	}
	<-done
	if data := c.stdout.result().GetData(); string(data) != "x" {
		t.Errorf("got %q", data)
	}
	c.stdout.pipe.Close()
	c.stderr.pipe.Close()
	<-reading
	<-reading
}

func TestDrainEndsThoughSomeoneWritesOn(t *testing.T) {
	c, stdout, stderr := pipedCommand(t)
	unix.Close(stderr)
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for block := bytes.Repeat([]byte("y\n"), 32<<10); ; {
			if _, err := unix.Write(stdout, block); err != nil { // blocks while the pipe is full
				return
			}
		}
	}()
	reading := make(chan struct{}, 2)
	for _, o := range []*output{c.stdout, c.stderr} {
		go func() {
			c.pump(o)
			reading <- struct{}{}
		}()
	}
	c.drain()
	c.stdout.pipe.Close()
	<-writing
	unix.Close(stdout)
	<-reading
	<-reading
}
