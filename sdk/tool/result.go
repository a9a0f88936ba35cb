package tool

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
)

// Result is what a call came to.
type Result struct {
	// Text is what the model reads.
	Text string
	// Display is what a person sees who cannot see terminals. Empty: Text.
	Display string
	// Exit says how the command of the call's terminal ended. Nil: there is no terminal, or its command never ran. It is the
	// one part that counts when Run returns an error too.
	Exit *Exit
}

// Text is a result that model and people read alike.
func Text(text string) Result { return Result{Text: text} }

// Exit is the end of a process: either a code, or a signal.
type Exit struct {
	Code   int
	Signal string // e.g. "SIGKILL"; empty: it ended by itself
}

// Error is an error with a name and a code for programs. Any other error of Run is a ToolError, TOOL_FAILED.
type Error struct {
	Name    string // e.g. "ToolArgsError"
	Code    string // e.g. "INVALID_ARGS"
	Message string
}

func (e *Error) Error() string { return e.Message }

// InvalidArguments is the error for values that the schema allows and the tool does not.
func InvalidArguments(format string, args ...any) error {
	return &Error{Name: "ToolArgsError", Code: "INVALID_ARGS", Message: fmt.Sprintf(format, args...)}
}

var (
	// ErrCancelled is the cause of a context whose call was cancelled.
	ErrCancelled = errors.New("the call was cancelled")

	errNoViewer = errors.New("nobody watches the call")
)

// toResult is the result of a call as it crosses to the host.
func toResult(r Result, err error) *toolsv1.Result {
	answer := &toolsv1.Result{}
	if r.Exit != nil {
		answer.Exit = &toolsv1.Exit{Code: int32(r.Exit.Code), Signal: validText(r.Exit.Signal)} //nolint:gosec // an exit code fits
	}
	if err != nil {
		answer.IsError = true
		answer.Error = &toolsv1.Error{Name: "ToolError", Code: "TOOL_FAILED"}
		if e := (*Error)(nil); errors.As(err, &e) {
			answer.Error = &toolsv1.Error{Name: validText(e.Name), Code: validText(e.Code)}
		}
		r.Text, r.Display = "Error: "+message(err), ""
	}
	answer.Content = content(r.Text)
	if r.Display != "" {
		answer.Display = content(r.Display)
	}
	return answer
}

func content(text string) []*toolsv1.Content {
	return []*toolsv1.Content{{Content: &toolsv1.Content_Text{Text: validText(text)}}}
}

// message is an error's text without what gRPC wraps around the message of a status.
func message(err error) string {
	text := err.Error()
	var s interface {
		error
		GRPCStatus() *status.Status
	}
	if errors.As(err, &s) {
		text = strings.Replace(text, s.Error(), s.GRPCStatus().Message(), 1)
	}
	return text
}
