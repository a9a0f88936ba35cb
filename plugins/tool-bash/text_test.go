package toolbash

import (
	"testing"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
)

func TestForegroundText(t *testing.T) {
	stream := func(data string) *bashv1.Stream { return &bashv1.Stream{Data: []byte(data)} }
	cut := func(data, path string) *bashv1.Stream {
		return &bashv1.Stream{Data: []byte(data), Truncated: true, SpillPath: path}
	}
	code := func(n int32) *bashv1.Exit { return &bashv1.Exit{Code: n} }
	for name, test := range map[string]struct {
		result *bashv1.Result
		want   string
	}{
		"nothing printed":                          {&bashv1.Result{Exit: code(0)}, "(no output)"},
		"nothing printed, with an exit code":       {&bashv1.Result{Exit: code(3)}, "(no output)\n[exit code: 3]"},
		"exit 0 has no marker":                     {&bashv1.Result{Stdout: stream("a\n"), Exit: code(0)}, "a\n"},
		"stdout keeps its missing newline":         {&bashv1.Result{Stdout: stream("a"), Exit: code(0)}, "a"},
		"a newline alone is output":                {&bashv1.Result{Stdout: stream("\n"), Exit: code(0)}, "\n"},
		"a marker is on its own line":              {&bashv1.Result{Stdout: stream("a"), Exit: code(1)}, "a\n[exit code: 1]"},
		"no empty line before a marker":            {&bashv1.Result{Stdout: stream("a\n"), Exit: code(1)}, "a\n[exit code: 1]"},
		"the output's own empty line stays":        {&bashv1.Result{Stdout: stream("a\n\n"), Exit: code(1)}, "a\n\n[exit code: 1]"},
		"a newline before [stderr]":                {&bashv1.Result{Stdout: stream("a"), Stderr: stream("e"), Exit: code(0)}, "a\n[stderr]\ne"},
		"no second newline before [stderr]":        {&bashv1.Result{Stdout: stream("a\n"), Stderr: stream("e\n"), Exit: code(0)}, "a\n[stderr]\ne\n"},
		"stderr alone starts the text":             {&bashv1.Result{Stderr: stream("e"), Exit: code(0)}, "[stderr]\ne"},
		"stderr alone, with an exit code":          {&bashv1.Result{Stderr: stream("e\n"), Exit: code(127)}, "[stderr]\ne\n[exit code: 127]"},
		"a signal instead of an exit code":         {&bashv1.Result{Stdout: stream("a"), Exit: &bashv1.Exit{Signal: "SIGKILL"}}, "a\n[killed by signal: SIGKILL]"},
		"a timeout and exit 0 are independent":     {&bashv1.Result{Stdout: stream("a"), TimedOut: true, TimeoutMs: 1000, Exit: code(0)}, "a\n[timed out after 1000ms]"},
		"a timeout and an exit code":               {&bashv1.Result{TimedOut: true, TimeoutMs: 600000, Exit: code(2)}, "(no output)\n[timed out after 600000ms]\n[exit code: 2]"},
		"a timeout and a signal":                   {&bashv1.Result{Stdout: stream("a\n"), TimedOut: true, TimeoutMs: 100, Exit: &bashv1.Exit{Signal: "SIGTERM"}}, "a\n[timed out after 100ms]\n[killed by signal: SIGTERM]"},
		"a truncated stdout":                       {&bashv1.Result{Stdout: cut("tail", "/s/out.log"), Exit: code(0)}, "tail\n[output truncated; full output: /s/out.log]"},
		"a truncated stdout that ends a line":      {&bashv1.Result{Stdout: cut("tail\n", "/s/out.log"), Exit: code(0)}, "tail\n[output truncated; full output: /s/out.log]"},
		"the note comes before [stderr]":           {&bashv1.Result{Stdout: cut("tail", "/s/o"), Stderr: stream("e"), Exit: code(0)}, "tail\n[output truncated; full output: /s/o]\n[stderr]\ne"},
		"a truncated stderr":                       {&bashv1.Result{Stderr: cut("tail", "/s/e"), Exit: code(9)}, "[stderr]\ntail\n[output truncated; full output: /s/e]\n[exit code: 9]"},
		"a spill that could not be written":        {&bashv1.Result{Stdout: cut("tail", ""), Exit: code(4)}, "tail\n[output truncated; full output: (unavailable)]\n[exit code: 4]"},
		"a spill that reached its limit":           {&bashv1.Result{Stdout: &bashv1.Stream{Data: []byte("tail"), Truncated: true, SpillPath: "/s/o", SpillCapped: true}, Exit: code(0)}, "tail\n[output truncated; full output: /s/o (only its beginning: the file has reached its limit)]"},
		"the executor's notes come before the end": {&bashv1.Result{Stdout: stream("a"), TimedOut: true, TimeoutMs: 5, Notes: []string{"[n1]", "[n2]"}, Exit: code(1)}, "a\n[timed out after 5ms]\n[n1]\n[n2]\n[exit code: 1]"},
		"everything": {&bashv1.Result{Stdout: cut("o", "/s/o"), Stderr: cut("e", "/s/e"), TimedOut: true, TimeoutMs: 7, Exit: &bashv1.Exit{Signal: "SIGKILL"}},
			"o\n[output truncated; full output: /s/o]\n[stderr]\ne\n[output truncated; full output: /s/e]\n[timed out after 7ms]\n[killed by signal: SIGKILL]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := foregroundText(test.result); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestBackgroundText(t *testing.T) {
	running := &bashv1.TaskStatus{State: bashv1.TaskStatus_STATE_RUNNING}
	ended := func(state bashv1.TaskStatus_State, exit *bashv1.Exit) *bashv1.TaskStatus {
		return &bashv1.TaskStatus{State: state, Exit: exit}
	}
	for name, test := range map[string]struct {
		read *bashv1.ReadResponse
		want string
	}{
		"nothing new":          {&bashv1.ReadResponse{Status: running}, "(no new output)\n[status: running]"},
		"stdout":               {&bashv1.ReadResponse{Stdout: []byte("a\n"), Status: running}, "a\n[status: running]"},
		"an unfinished line":   {&bashv1.ReadResponse{Stdout: []byte("a"), Status: running}, "a\n[status: running]"},
		"stderr":               {&bashv1.ReadResponse{Stderr: []byte("e\n"), Status: running}, "[stderr]\ne\n[status: running]"},
		"both":                 {&bashv1.ReadResponse{Stdout: []byte("a"), Stderr: []byte("e"), Status: running}, "a\n[stderr]\ne\n[status: running]"},
		"completed":            {&bashv1.ReadResponse{Status: ended(bashv1.TaskStatus_STATE_COMPLETED, &bashv1.Exit{Code: 3})}, "(no new output)\n[status: completed, exit code: 3]"},
		"completed with 0":     {&bashv1.ReadResponse{Status: ended(bashv1.TaskStatus_STATE_COMPLETED, &bashv1.Exit{})}, "(no new output)\n[status: completed, exit code: 0]"},
		"killed by a signal":   {&bashv1.ReadResponse{Status: ended(bashv1.TaskStatus_STATE_KILLED, &bashv1.Exit{Signal: "SIGTERM"})}, "(no new output)\n[status: killed by SIGTERM]"},
		"killed, not over yet": {&bashv1.ReadResponse{Stdout: []byte("bye"), Status: ended(bashv1.TaskStatus_STATE_KILLED, nil)}, "bye\n[status: killed]"},
		"never started":        {&bashv1.ReadResponse{Stderr: []byte("working directory does not exist: /x\n"), Status: ended(bashv1.TaskStatus_STATE_KILLED, nil)}, "[stderr]\nworking directory does not exist: /x\n[status: killed]"},
		"lost bytes of both streams": {&bashv1.ReadResponse{Stdout: []byte("o"), Stderr: []byte("e"), Dropped: true, SpillPaths: []string{"/s/o", "/s/e"}, Status: running},
			"o\n[stderr]\ne\n[some output was dropped from memory; full output: /s/o, /s/e]\n[status: running]"},
		"lost bytes of one stream":  {&bashv1.ReadResponse{Stdout: []byte("o\n"), Dropped: true, SpillPaths: []string{"/s/o"}, Status: running}, "o\n[some output was dropped from memory; full output: /s/o]\n[status: running]"},
		"lost bytes without a file": {&bashv1.ReadResponse{Stdout: []byte("o\n"), Dropped: true, SpillPaths: []string{""}, Status: running}, "o\n[some output was dropped from memory; full output: (unavailable)]\n[status: running]"},
		"lost bytes of which the file has only the beginning": {&bashv1.ReadResponse{Stdout: []byte("o\n"), Dropped: true, SpillPaths: []string{"/s/o"}, SpillCapped: []bool{true}, Status: running},
			"o\n[some output was dropped from memory; full output: /s/o (only its beginning: the file has reached its limit)]\n[status: running]"},
		"lost bytes of two streams, one file has only the beginning": {&bashv1.ReadResponse{Stdout: []byte("o\n"), Dropped: true, SpillPaths: []string{"/s/o", "/s/e"}, SpillCapped: []bool{false, true}, Status: running},
			"o\n[some output was dropped from memory; full output: /s/o, /s/e (only its beginning: the file has reached its limit)]\n[status: running]"},
		"lost bytes without a word": {&bashv1.ReadResponse{Stdout: []byte("o\n"), Dropped: true, Status: running}, "o\n[some output was dropped from memory; full output: (unavailable)]\n[status: running]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := backgroundText(test.read); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheFenceIsLongerThanAnyInsideIt(t *testing.T) {
	for text, want := range map[string]string{
		"":               "```console\n```",
		"a":              "```console\na\n```",
		"a\n":            "```console\na\n```",
		"``":             "```console\n``\n```",
		"```sh\nx\n```":  "````console\n```sh\nx\n```\n````",
		"`````, ``` and": "``````console\n`````, ``` and\n``````",
	} {
		if got := fenced(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
