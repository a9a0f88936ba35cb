package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

// TestAWrongCallIsAResultForTheModel: what the tools make of arguments that are no JSON, or of a name they do not know, the model reads,
// and goes on; also when it has nothing more to say then.
func TestAWrongCallIsAResultForTheModel(t *testing.T) {
	w := newWorld(t)
	w.model = func(_ context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
		if n > 0 {
			return llm.Stop, nil
		}
		return llm.Stop, errors.Join(
			emit(llm.ToolCallEvent(&llm.ToolCall{Id: "c1", Name: "bash", Arguments: `{"command":"ec`})),
			emit(llm.ToolCallEvent(&llm.ToolCall{Id: "c2", Name: "nope", Arguments: "\x00"})))
	}
	w.tool = func(call *toolsv1.Call, _ <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		send(result("Error: " + call.GetName()))
		return nil
	}
	equal(t, "turn", show(w.rest(w.send(w.create(), "hi"))), `
turn/start
user/message hi
session/title hi
step/start
assistant/message  [c1 bash {"command":"ec] [c2 nope `+"\x00"+`]
tool/result c1 Error: bash
tool/result c2 Error: nope
step/end
step/start
step/end
turn/end completed`)
	if w.calls[0].GetArguments() != `{"command":"ec` || w.calls[1].GetArguments() != "\x00" {
		t.Errorf("calls %v", w.calls)
	}
	equal(t, "request", showMessages(w.request(1).GetMessages()[2:]), `
assistant  [c1 bash {"command":"ec] [c2 nope `+"\x00"+`]
tool Error: bash (c1)
tool Error: nope (c2)`)
}

func TestWithoutToolsThereIsNoRequest(t *testing.T) {
	w := newWorld(t)
	w.list = func(context.Context) error { return status.Error(codes.Unavailable, "the host stops") }
	equal(t, "turn", show(w.rest(w.send(w.create(), "hi"))), `
turn/start
user/message hi
session/title hi
turn/end error: list the tools: the host stops`)
}

func TestAFailureOfACallIsAResult(t *testing.T) {
	w := newWorld(t)
	w.model = asks([]string{"c1 bash {}"}, []string{"c2 bash {}"})
	w.tool = func(call *toolsv1.Call, _ <-chan struct{}, send func(*toolsv1.ExecuteResponse)) error {
		if call.GetCallId() == "c1" {
			return status.Error(codes.Unavailable, "plugin tool-bash crashed")
		}
		send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Presentation{Presentation: &toolsv1.Presentation{
			Title: "T", RawInput: "no json", Terminal: &toolsv1.Terminal{Cwd: "/w"},
		}}})
		send(&toolsv1.ExecuteResponse{Event: &toolsv1.ExecuteResponse_Result{Result: &toolsv1.Result{
			IsError: true, Error: &toolsv1.Error{Name: "E", Code: "C"}, Exit: &toolsv1.Exit{},
			Display: []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: "shown"}}},
		}}})
		return nil
	}
	events := w.rest(w.send(w.create(), "hi"))
	var lines []string
	for _, e := range events {
		if strings.HasPrefix(e.Type, "tool/") {
			data, err := json.Marshal(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, e.Type+" "+string(data))
		}
	}
	equal(t, "calls", strings.Join(lines, "\n"), `
tool/result {"call_id":"c1","content":[{"type":"text","text":"Error: plugin tool-bash crashed"}],"is_error":true,"error":{"name":"ToolCallError","code":"CALL_FAILED"}}
tool/call {"call_id":"c2","name":"bash","arguments":"{}","presentation":{"title":"T","kind":"other","raw_input":"no json","terminal":{"cwd":"/w"}}}
tool/result {"call_id":"c2","content":[],"is_error":true,"error":{"name":"E","code":"C"},"display":[{"type":"text","text":"shown"}],"exit":{"code":0}}`)
}

func TestCallIDsAreUniqueWithinTheSession(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c bash {1}", "c bash {2}", " bash {3}"}, []string{"c bash {4}"}), echo
	session := w.create()
	w.rest(w.send(session, "hi"))
	equal(t, "request", showMessages(w.request(2).GetMessages()[2:]), `
assistant  [c bash {1}] [call-1 bash {2}] [call-2 bash {3}]
tool ran {1} (c)
tool ran {2} (call-1)
tool ran {3} (call-2)
assistant  [call-4 bash {4}]
tool ran {4} (call-4)`)
}
