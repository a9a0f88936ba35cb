package toolbash

import (
	"fmt"
	"strings"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

// foregroundText is what the model reads of a command that ran to its end.
func foregroundText(r *bashv1.Result) string {
	var t text
	t.streams(r.GetStdout().GetData(), truncation(r.GetStdout()), r.GetStderr().GetData(), truncation(r.GetStderr()))
	if t.empty() {
		t.line("(no output)")
	}
	if r.GetTimedOut() {
		t.line(timeoutNote(r))
	}
	for _, note := range r.GetNotes() {
		t.line(note)
	}
	switch exit := r.GetExit(); {
	case exit.GetSignal() != "":
		t.line(fmt.Sprintf("[killed by signal: %s]", exit.GetSignal()))
	case exit.GetCode() != 0:
		t.line(fmt.Sprintf("[exit code: %d]", exit.GetCode()))
	}
	return t.String()
}

// terminalNotes are the lines of foregroundText that a terminal does not show by itself.
func terminalNotes(r *bashv1.Result) []string {
	var notes []string
	for _, stream := range []*bashv1.Stream{r.GetStdout(), r.GetStderr()} {
		if note := truncation(stream); note != "" {
			notes = append(notes, note)
		}
	}
	if r.GetTimedOut() {
		notes = append(notes, timeoutNote(r))
	}
	return append(notes, r.GetNotes()...)
}

func timeoutNote(r *bashv1.Result) string {
	return fmt.Sprintf("[timed out after %dms]", r.GetTimeoutMs())
}

func truncation(s *bashv1.Stream) string {
	if !s.GetTruncated() {
		return ""
	}
	return fmt.Sprintf("[output truncated; full output: %s]", place(s.GetSpillPath(), s.GetSpillCapped()))
}

// place says where the whole of a stream is.
func place(spillPath string, capped bool) string {
	switch {
	case spillPath == "":
		return "(unavailable)"
	case capped:
		return spillPath + " (only its beginning: the file has reached its limit)"
	}
	return spillPath
}

// backgroundText is what the model reads of a task.
func backgroundText(r *bashv1.ReadResponse) string {
	var t text
	t.streams(r.GetStdout(), "", r.GetStderr(), "")
	if t.empty() {
		t.line("(no new output)")
	}
	if r.GetDropped() {
		t.line(fmt.Sprintf("[some output was dropped from memory; full output: %s]", places(r)))
	}
	t.line(statusText(r.GetStatus()))
	return t.String()
}

// places says where the streams are of which a task has lost output.
func places(r *bashv1.ReadResponse) string {
	var named []string
	for i, path := range r.GetSpillPaths() {
		capped := r.GetSpillCapped()
		named = append(named, place(path, i < len(capped) && capped[i]))
	}
	if len(named) == 0 {
		return "(unavailable)"
	}
	return strings.Join(named, ", ")
}

// statusText says in one line how a task is doing.
func statusText(s *bashv1.TaskStatus) string {
	switch {
	case s.GetState() == bashv1.TaskStatus_STATE_RUNNING:
		return "[status: running]"
	case s.GetState() == bashv1.TaskStatus_STATE_COMPLETED:
		return fmt.Sprintf("[status: completed, exit code: %d]", s.GetExit().GetCode())
	case s.GetExit().GetSignal() != "":
		return fmt.Sprintf("[status: killed by %s]", s.GetExit().GetSignal())
	}
	return "[status: killed]"
}

// fenced is text as a block of Markdown whose fence the text cannot close.
func fenced(text string) string {
	longest, run := 0, 0
	for i := range len(text) {
		if text[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", max(3, longest+1))
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return fence + "console\n" + text + fence
}

// text is built of output, which keeps its own line ends, and of lines of ours, which begin on a line of their own and do not
// end it.
type text struct{ strings.Builder }

func (t *text) empty() bool { return t.Len() == 0 }

func (t *text) line(line string) {
	t.freshLine()
	t.WriteString(line)
}

func (t *text) freshLine() {
	if !t.empty() && !strings.HasSuffix(t.String(), "\n") {
		t.WriteByte('\n')
	}
}

func (t *text) streams(stdout []byte, stdoutNote string, stderr []byte, stderrNote string) {
	t.WriteString(plain(stdout))
	if stdoutNote != "" {
		t.line(stdoutNote)
	}
	if stderr := plain(stderr); stderr != "" {
		t.line("[stderr]\n")
		t.WriteString(stderr)
	}
	if stderrNote != "" {
		t.line(stderrNote)
	}
}
