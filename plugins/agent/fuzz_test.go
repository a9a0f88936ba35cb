package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dsh-go/dsh/plugins/agent"
)

// FuzzLog: whatever a stored log holds, loading it neither panics nor hangs. A log that is refused is left as it is; one that is loaded
// keeps what it had, up to the last whole line, and can be loaded again.
func FuzzLog(f *testing.F) {
	const (
		created = `{"seq":1,"time":"2026-11-30T10:00:00Z","type":"session/created","format":1,"session_id":"s","cwd":"/"}` + "\n"
		turn    = `{"seq":2,"time":"2026-11-30T10:00:01Z","type":"turn/start"}` + "\n" +
			`{"seq":3,"time":"2026-11-30T10:00:01Z","type":"user/message","prompt_id":"p","content":[{"type":"text","text":"é"}]}` + "\n" +
			`{"seq":4,"time":"2026-11-30T10:00:01Z","type":"step/start"}` + "\n" +
			`{"seq":5,"time":"2026-11-30T10:00:02Z","type":"assistant/message","text":"a","tool_calls":[{"call_id":"c","name":"bash","arguments":"{}"}]}` + "\n"
		end = `{"seq":6,"time":"2026-11-30T10:00:02Z","type":"tool/result","call_id":"c","content":[{"type":"text","text":"x"}]}` + "\n" +
			`{"seq":7,"time":"2026-11-30T10:00:02Z","type":"turn/end","reason":"completed"}` + "\n"
	)
	for _, seed := range []string{
		"", created, created + turn + end, created + turn, created + turn[:len(turn)-9], created + turn + "\x00\x00\x00\x00", created + end, turn,
		created + created, "\n", created + "{}\n" + turn, created + turn + `{"seq":6,"time":"` + "\xc3",
		`{"seq":1,"time":"2026-11-30T10:00:00Z","type":"session/created","format":99,"session_id":"s","cwd":"/"}` + "\n",
	} {
		f.Add([]byte(seed))
	}
	const id = "20261130-100000-aaaaaaaaaaaa"
	dir := f.TempDir()
	path := filepath.Join(dir, id+".jsonl")
	f.Fuzz(func(t *testing.T, log []byte) {
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		last, err := agent.LoadLog(dir, id)
		after, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil {
			whole := log[:bytes.LastIndexByte(log, '\n')+1]
			if !bytes.Equal(after, log) && len(whole) > 0 {
				t.Fatalf("a log that is refused was changed: %v\n%q\n%q", err, log, after)
			}
			return
		}
		kept := bytes.LastIndexByte(log, '\n') + 1
		if i := bytes.IndexByte(log, 0); i >= 0 { // a power failure may have cost the last line
			kept = bytes.LastIndexByte(log[:i], '\n') + 1
		}
		if !bytes.HasPrefix(after, log[:kept]) {
			t.Fatalf("what the log had is changed:\n%q\n%q", log, after)
		}
		if again, err := agent.LoadLog(dir, id); err != nil || again != last {
			t.Fatalf("loaded again: event %d, was %d: %v\n%q", again, last, err, after)
		}
	})
}
