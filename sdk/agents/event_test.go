package agents_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/sdk/agents"
)

// TestTheDocumentedExamplesAreEvents holds docs/sessions.md to the code: an example of each type, each exactly what Encode writes.
func TestTheDocumentedExamplesAreEvents(t *testing.T) {
	page, err := os.ReadFile("../../docs/sessions.md")
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	var seq uint64
	sections := regexp.MustCompile("(?s)### (\\S+)\n.*?```json\n(.*?)```\n").FindAllStringSubmatch(string(page), -1)
	for _, section := range sections {
		types = append(types, section[1])
		for line := range strings.Lines(section[2]) {
			line = strings.TrimSpace(line)
			e, err := agents.Decode([]byte(line))
			if err != nil {
				t.Errorf("%s: %v", section[1], err)
				continue
			}
			seq++
			again, err := agents.Encode(e)
			if err != nil || string(again) != line || e.Seq != seq || e.Type != section[1] {
				t.Errorf("%s: %s\nis encoded as\n%s (%v)", section[1], line, again, err)
			}
		}
	}
	if !slices.Equal(types, agents.Types()) {
		t.Errorf("documented: %v", types)
	}
}

func TestEventsSurviveEncoding(t *testing.T) {
	texts := rapid.String()
	blocks := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) agents.ContentBlock {
		return agents.ContentBlock{Type: agents.BlockText, Text: texts.Draw(r, "text")}
	}), 1, 3)
	rapid.Check(t, func(r *rapid.T) {
		code := rapid.Int().Draw(r, "code")
		data := rapid.SampledFrom([]agents.Data{
			&agents.TurnStart{},
			&agents.UserMessage{PromptID: texts.Draw(r, "id"), Content: blocks.Draw(r, "blocks")},
			&agents.SessionTitle{Title: texts.Draw(r, "title")},
			&agents.SessionOption{Option: "mode", Value: texts.Draw(r, "value")},
			&agents.ModelRetry{Reason: texts.Draw(r, "reason"), DelayMS: 7},
			&agents.ToolAsk{CallID: "c", Hook: "h", Reason: texts.Draw(r, "why"), Key: texts.Draw(r, "key")},
			&agents.ToolAnswer{CallID: "c", Outcome: agents.OutcomeAllowedForSession},
			&agents.AssistantChunk{Text: texts.Draw(r, "chunk")},
			&agents.AssistantMessage{ToolCalls: []agents.ToolRequest{{CallID: "c", Name: "bash", Arguments: texts.Draw(r, "arguments")}}},
			&agents.ToolCall{Presentation: agents.Presentation{Kind: "other", RawInput: json.RawMessage(`{"a":[1]}`), Terminal: &agents.Terminal{}}},
			&agents.ToolResult{Content: []agents.Content{{Type: "text", Text: texts.Draw(r, "result")}}, Exit: &agents.Exit{Code: &code}},
		}).Draw(r, "data")
		e := agents.Event{Seq: rapid.Uint64Min(1).Draw(r, "seq"), Time: time.UnixMilli(rapid.Int64Range(0, 1e13).Draw(r, "time")).UTC(), Data: data}
		line, err := agents.Encode(e)
		if err != nil {
			r.Fatal(err)
		}
		if strings.ContainsRune(string(line), '\n') || !json.Valid(line) {
			r.Fatalf("not a line of JSON: %s", line)
		}
		got, err := agents.Decode(line)
		if err != nil {
			r.Fatal(err)
		}
		if e.Type = got.Type; !reflect.DeepEqual(got, e) {
			r.Fatalf("%s\ndecodes to %+v", line, got)
		}
	})
}

func TestAnUnknownTypeHasNoData(t *testing.T) {
	e, err := agents.Decode([]byte(`{"seq":7,"time":"2027-01-01T00:00:00.000Z","type":"plan/updated","steps":[1]}`))
	if err != nil || e.Seq != 7 || e.Type != "plan/updated" || e.Data != nil {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestWhatIsNoEvent(t *testing.T) {
	for _, line := range []string{``, `null`, `[]`, `{}`, `{"seq":1}`, `{"seq":0,"type":"turn/start"}`, `{"seq":-1,"type":"turn/start"}`, `{"seq":1,"type":"usage","input_tokens":"x"}`, `{"seq":1,"type":"turn/start"} x`,
		`{"seq":1,"time":"2027-01-01T00:00:00.000Z","type":"turn/start"} x`, `{"seq":1,"time":"2027-01-01T00:00:00.000Z","type":"plan/updated"`,
		`{"seq":01,"time":"2027-01-01T00:00:00.000Z","type":"turn/start"}`, `{"seq":0,"time":"2027-01-01T00:00:00.000Z","type":"turn/start"}`,
		`{"seq":1,"time":"2027-01-01T00:00:00.000Z","type":""}`, "{\"seq\":1,\"time\":\"2027-01-01T00:00:00.000Z\",\"type\":\"a\nb\"}"} {
		if e, err := agents.Decode([]byte(line)); err == nil {
			t.Errorf("%s is %+v", line, e)
		}
	}
}

func TestAnEventMayBeWrittenInAnotherWay(t *testing.T) {
	for _, line := range []string{
		`{"seq":7,"time":"2027-01-01T00:00:00.000Z","type":"session/title","title":"T"}`,
		`{"seq":7,"time":"2027-01-01T01:00:00+01:00","type":"session/title","title":"T"}`,
		`{"seq":7,"time":"2027-01-01T00:00:00.000Z","type":"session\/title","title":"T"}`,
		` { "type": "session/title", "title": "T", "time": "2027-01-01T00:00:00Z", "seq": 7 } `,
	} {
		e, err := agents.Decode([]byte(line))
		title, ok := e.Data.(*agents.SessionTitle)
		if err != nil || e.Seq != 7 || !e.Time.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) || e.Type != "session/title" || !ok || title.Title != "T" {
			t.Errorf("%s: %+v, %v", line, e, err)
		}
	}
}
