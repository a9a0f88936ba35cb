package llmshell

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dsh-go/dsh/sdk/llm"
)

// ending says in one line how a call ended, and no more than its result says: a command that ended without a marker need not
// have succeeded, only its last part did.
func ending(call *llm.ToolCall, result string) string {
	switch call.GetName() {
	case "bash":
		return commandEnding(result)
	case "bash_output":
		return taskEnding(result)
	}
	return answered(result)
}

func commandEnding(result string) string {
	text, how := result, "ended"
	if before, code, ok := cutMarker(text, "[exit code: "); ok {
		text, how = before, "ended with exit code "+code
	} else if before, signal, ok := cutMarker(text, "[killed by signal: "); ok {
		text, how = before, "was killed by "+signal
	}
	if _, limit, ok := cutMarker(text, "[timed out after "); ok {
		return fmt.Sprintf("The command timed out after %s and %s.", limit, how)
	}
	if how == "ended" {
		if task, ok := strings.CutPrefix(result, "started background task "); ok && !strings.ContainsAny(task, " \n") {
			return fmt.Sprintf("The command was started in the background as task %s.", task)
		}
		if strings.HasPrefix(result, "Error: ") {
			return answered(result)
		}
	}
	return fmt.Sprintf("The command %s.", how)
}

func taskEnding(result string) string {
	_, status, ok := cutMarker(result, "[status: ")
	if !ok {
		return answered(result)
	}
	if code, ok := strings.CutPrefix(status, "completed, exit code: "); ok {
		return fmt.Sprintf("The task ended with exit code %s.", code)
	}
	if status == "running" {
		return "The task is running."
	}
	return fmt.Sprintf("The task was %s.", status) // killed, killed by SIGTERM
}

// cutMarker splits the marker that closes a text from what comes before it: "[exit code: 3]" gives "3". Nothing follows a
// marker, so what a command printed in the form of one, with a newline, is not taken for it.
func cutMarker(text, prefix string) (before, value string, ok bool) {
	at := strings.LastIndexByte(text, '\n') + 1
	value, ok = strings.CutPrefix(text[at:], prefix)
	if !ok || !strings.HasSuffix(value, "]") {
		return text, "", false
	}
	return strings.TrimSuffix(text[:at], "\n"), strings.TrimSuffix(value, "]"), true
}

// answered quotes the first line of a result.
func answered(result string) string {
	const limit = 200 // characters
	line, more, _ := strings.Cut(strings.TrimSpace(result), "\n")
	line = strings.TrimRight(line, "\r")
	cut := strings.TrimSpace(more) != ""
	if utf8.RuneCountInString(line) > limit {
		line, cut = string([]rune(line)[:limit]), true
	}
	switch {
	case line == "":
		return "The tool answered with nothing."
	case cut:
		return "The tool answered: " + line + " …"
	}
	return "The tool answered: " + line
}
