package tool

import (
	"sync"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Call is one use of a tool. As an [io.Writer] it takes what a person sees in the call's terminal while it runs.
type Call struct {
	// ID is unique within the session.
	ID string
	// Name is the tool's name.
	Name string
	// Arguments are as the model wrote them.
	Arguments string
	// SessionID is the session on whose behalf the tool runs. Empty: none.
	SessionID string
	// Cwd is the session's working directory, absolute. Empty: none.
	Cwd string

	out output
}

func newCall(c *toolsv1.Call) *Call {
	return &Call{ID: c.GetCallId(), Name: c.GetName(), Arguments: c.GetArguments(), SessionID: c.GetSessionId(), Cwd: c.GetSessionCwd()}
}

// Output appends text to the call's terminal.
func (c *Call) Output(text string) { _, _ = c.Write([]byte(text)) }

// Write appends bytes to the call's terminal. A character may be split between two writes; bytes that are no UTF-8 show as
// U+FFFD. It waits while the viewer is slow, and fails when the viewer is gone or Run has returned.
func (c *Call) Write(p []byte) (int, error) {
	if err := c.out.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// outputPiece bounds one message of output.
const outputPiece = 256 << 10

// output sends text while it is open. mu guards all of it, and keeps messages in order.
type output struct {
	mu   sync.Mutex
	send func(text string) error // nil: closed, or nobody watches
	text decoder
}

func (o *output) open(send func(string) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.send = send
}

func (o *output) write(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.send == nil {
		return errNoViewer
	}
	for len(p) > 0 {
		n := min(len(p), outputPiece)
		if err := o.sendText(o.text.decode(p[:n])); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// close sends what is left of a split character; nothing is sent after it.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.send != nil {
		_ = o.sendText(o.text.flush()) // the result follows and tells
	}
	o.send = nil
}

func (o *output) sendText(text string) error {
	if text == "" {
		return nil
	}
	return o.send(text)
}
