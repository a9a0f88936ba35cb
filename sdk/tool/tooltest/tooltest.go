// Package tooltest calls the tools of a plugin in a test, and holds every call to the contract of a tool provider.
package tooltest

import (
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Execution is all that came of a call.
type Execution struct {
	Presentation *toolsv1.Presentation
	// Output is what the call's terminal shows.
	Output string
	Result *toolsv1.Result
}

// Text is what the model reads.
func (e Execution) Text() string {
	text := ""
	for _, c := range e.Result.GetContent() {
		text += c.GetText()
	}
	return text
}

// Execute runs a call of a tool; conn is the connection to the plugin's seams.
func Execute(t testing.TB, conn grpc.ClientConnInterface, call *toolsv1.Call) Execution {
	t.Helper()
	return Begin(t, conn, call).End()
}

// Running is a call under way.
type Running struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[toolsv1.ExecuteRequest, toolsv1.ExecuteResponse]
}

// Begin starts a call of a tool.
func Begin(t testing.TB, conn grpc.ClientConnInterface, call *toolsv1.Call) *Running {
	t.Helper()
	stream, err := toolsv1.NewToolProviderClient(conn).Execute(t.Context())
	if err != nil {
		t.Fatalf("call %s: %v", call.GetName(), err)
	}
	if err := stream.Send(&toolsv1.ExecuteRequest{Request: &toolsv1.ExecuteRequest_Call{Call: call}}); err != nil {
		t.Fatalf("call %s: %v", call.GetName(), err)
	}
	return &Running{t, stream}
}

// Cancel cancels the call.
func (r *Running) Cancel() {
	r.t.Helper()
	cancel := &toolsv1.ExecuteRequest_Cancel_{Cancel: &toolsv1.ExecuteRequest_Cancel{}}
	if err := r.stream.Send(&toolsv1.ExecuteRequest{Request: cancel}); err != nil {
		r.t.Fatalf("cancel: %v", err)
	}
}

// End waits for the result. It fails the test unless the presentation comes first, the result last and once, and an error has
// a name and a code.
func (r *Running) End() Execution {
	r.t.Helper()
	var e Execution
	for {
		answer, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.t.Fatalf("the call failed instead of giving a result: %v", err)
		}
		if e.Result != nil {
			r.t.Fatalf("after the result came %v", answer)
		}
		switch event := answer.GetEvent().(type) {
		case *toolsv1.ExecuteResponse_Presentation:
			e.Presentation = event.Presentation
		case *toolsv1.ExecuteResponse_Output_:
			e.Output += event.Output.GetData()
		case *toolsv1.ExecuteResponse_Result:
			e.Result = event.Result
		default:
			r.t.Fatalf("a provider does not send %v", answer)
		}
		if e.Presentation == nil {
			r.t.Fatalf("before the presentation came %v", answer)
		}
	}
	if e.Result == nil {
		r.t.Fatal("the call ended without a result")
	}
	if !utf8.ValidString(e.Output) {
		r.t.Errorf("the output is no UTF-8: %q", e.Output)
	}
	if e.Result.GetIsError() != (e.Result.GetError().GetName() != "" && e.Result.GetError().GetCode() != "") {
		r.t.Errorf("isError is %v, and the error %v", e.Result.GetIsError(), e.Result.GetError())
	}
	return e
}
