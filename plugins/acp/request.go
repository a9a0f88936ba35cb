package acp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
)

// request is a frame that is owed an answer. It gets exactly one.
type request struct {
	b        *bridge
	id       jsonrpc.ID
	method   string
	line     uint64
	prompt   *prompt // of a session/prompt
	answered atomic.Bool
}

// begin counts a frame that is owed an answer.
func (b *bridge) begin(id jsonrpc.ID, method string, line uint64) *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight++
	return &request{b: b, id: id, method: method, line: line}
}

// answer sends the result.
func (r *request) answer(result any) { r.respond(jsonrpc.Answer(r.id, result)) }

// fail sends an error: as it is when it is one of the protocol, else what the seam's status says.
func (r *request) fail(err error) { r.respond(jsonrpc.Fail(r.id, r.b.protocolError(err))) }

// respond sends the answer, after the updates that belong before it.
func (r *request) respond(answer []byte, before ...[]byte) { r.send(append(before, answer)...) }

// send writes the answer, and what belongs right before and after it.
func (r *request) send(lines ...[]byte) {
	if r.answered.Swap(true) {
		r.b.log.Error("a request would be answered twice", "method", r.method)
		return
	}
	if r.prompt != nil {
		r.b.release(r.prompt)
	}
	if err := r.b.lease.Answer(r.b.out, r.line, bytes.Join(lines, nil)); err != nil {
		r.b.log.Debug("an answer was not written", "method", r.method, "error", err)
	}
	r.b.finish(r)
}

// finish counts a request as done with.
func (b *bridge) finish(r *request) {
	b.mu.Lock()
	b.inFlight--
	if a := b.answering[r.line]; a != nil {
		a.queued = true
	}
	b.mu.Unlock()
	signal(b.settled)
}

// later answers from the reader, which does not wait for stdout.
func (r *request) later(answer func()) {
	select {
	case r.b.replies <- answer:
	case <-r.b.work.Done():
	}
}

// refuse fails the request from the reader.
func (r *request) refuse(err error) { r.later(func() { r.fail(err) }) }

// handle runs a handler.
func (r *request) handle(handler func(context.Context, *request)) {
	defer r.contain()
	handler(r.b.work, r)
}

// contain makes a panic the request's answer. To be deferred.
func (r *request) contain() {
	p := recover()
	if p == nil {
		return
	}
	r.b.log.Error("a request panicked", "method", r.method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if !r.answered.Load() {
		r.refuse(jsonrpc.Errorf(jsonrpc.CodeInternal, "internal error in %s: %v", r.method, p))
	}
}

func (b *bridge) protocolError(err error) *jsonrpc.Error {
	if e := new(jsonrpc.Error); errors.As(err, &e) {
		return e
	}
	if cause := context.Cause(b.work); cause != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInternal, "%v", cause)
	}
	code := jsonrpc.CodeInternal
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.NotFound:
		code = jsonrpc.CodeNotFound
	case codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition:
		code = jsonrpc.CodeInvalidParams
	}
	return jsonrpc.Errorf(code, "%s", s.Message())
}

func unknownSession(id string) error {
	return jsonrpc.Errorf(jsonrpc.CodeNotFound, "unknown session: %s", id)
}

// signal wakes the one who waits, now or next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
