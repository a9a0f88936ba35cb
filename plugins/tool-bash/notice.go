package toolbash

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/events"
)

// notifier tells the owner of a task that it has ended.
type notifier struct{ agents *agents.Client }

// taskFinished deals with one event. It fails while the owner cannot be reached and returns nil when it never will be: then
// there is nobody to tell.
func (n notifier) taskFinished(ctx context.Context, event *events.Event) error {
	var finished bashv1.TaskFinished
	if err := proto.Unmarshal(event.GetData(), &finished); err != nil || finished.GetSessionId() == "" {
		return nil
	}
	err := n.agents.Inject(ctx, finished.GetSessionId(), noticeText(&finished), agents.Source{Kind: "plugin", Plugin: "tool-bash"}, event.GetKey())
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument:
		return nil
	}
	return err
}

func noticeText(f *bashv1.TaskFinished) string {
	if f.GetLost() != "" {
		return f.GetLost()
	}
	return fmt.Sprintf("background bash task %s finished %s. Read its output with bash_output.", f.GetTaskId(), statusText(f.GetStatus()))
}
