package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/tool"
)

// listing answers List with a tool whose name counts the answers. meanwhile happens while an answer is on its way.
type listing struct {
	grpc.ClientConnInterface
	answers   int
	meanwhile func()
	err       error
}

func (l *listing) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if l.err != nil {
		return l.err
	}
	l.answers++
	if l.meanwhile != nil {
		l.meanwhile()
	}
	reply.(*toolsv1.ListResponse).Tools = []*toolsv1.Tool{{Name: fmt.Sprint(l.answers)}}
	return nil
}

func TestTheListOfToolsIsKeptOnlyWhileChangesAreHeardOf(t *testing.T) {
	host := &listing{}
	l := &toolList{client: tool.NewClient(host)}
	expect := func(want string) {
		t.Helper()
		tools, _, err := l.get(t.Context())
		if err != nil || len(tools) != 1 || tools[0].GetName() != want {
			t.Fatalf("got %v, %v, want answer %s", tools, err, want)
		}
	}
	expect("1")
	expect("2") // nobody would have said
	l.changed(true)
	expect("3")
	expect("3")
	l.changed(true)
	host.meanwhile = func() { l.changed(true) }
	expect("4")
	host.meanwhile = nil
	expect("5") // for the fourth was out of date when it came
	expect("5")
	l.changed(false)
	expect("6")
	expect("7")
	l.changed(true)
	host.err = errors.New("no answer")
	if _, _, err := l.get(t.Context()); !errors.Is(err, host.err) {
		t.Errorf("got %v", err)
	}
	host.err = nil
	expect("8")
}
