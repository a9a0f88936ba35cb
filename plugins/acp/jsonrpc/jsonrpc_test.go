package jsonrpc

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, line string
		kind       Kind
		id, method string
		code       int
	}{
		{"a request", `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, Request, "1", "m", 0},
		{"a string id", `{"jsonrpc":"2.0","id":"a\u0062","method":"m"}`, Request, `"a\u0062"`, "m", 0},
		{"a large integer", `{"jsonrpc":"2.0","id":-9007199254740993123,"method":"m"}`, Request, "-9007199254740993123", "m", 0},
		{"spaces around", " \t{\"jsonrpc\":\"2.0\" , \"id\" : 7 , \"method\":\"m\"}\r", Request, "7", "m", 0},
		{"a notification", `{"jsonrpc":"2.0","method":"m","params":null}`, Notification, "null", "m", 0},
		{"an answer", `{"jsonrpc":"2.0","id":3,"result":null}`, Response, "3", "", 0},
		{"an error answer", `{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}`, Response, "3", "", 0},
		{"unfinished", `{"jsonrpc":"2.0"`, 0, "null", "", CodeParse},
		{"two values", `{"jsonrpc":"2.0","method":"m"}{}`, 0, "null", "", CodeParse},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xc3\",\"method\":\"m\"}", 0, "null", "", CodeParse},
		{"nested too deep", strings.Repeat("[", 20000) + strings.Repeat("]", 20000), 0, "null", "", CodeParse},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"m"}]`, 0, "null", "", CodeInvalidRequest},
		{"null", `null`, 0, "null", "", CodeInvalidRequest},
		{"a string", `"x"`, 0, "null", "", CodeInvalidRequest},
		{"nothing of use", `{}`, 0, "null", "", CodeInvalidRequest},
		{"members in other letters", `{"jsonrpc":"2.0","Id":1,"Method":"m"}`, 0, "null", "", CodeInvalidRequest},
		{"a fraction for an id", `{"jsonrpc":"2.0","id":1.5,"method":"m"}`, 0, "null", "", CodeInvalidRequest},
		{"an exponent in an id", `{"jsonrpc":"2.0","id":1e3,"method":"m"}`, 0, "null", "", CodeInvalidRequest},
		{"null for an id", `{"jsonrpc":"2.0","id":null,"method":"m"}`, 0, "null", "", CodeInvalidRequest},
		{"an object for an id", `{"jsonrpc":"2.0","id":{},"method":"m"}`, 0, "null", "", CodeInvalidRequest},
		{"a number for a method", `{"jsonrpc":"2.0","id":1,"method":5}`, 0, "1", "", CodeInvalidRequest},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"m"}`, 0, "1", "m", CodeInvalidRequest},
		{"no version", `{"id":1,"method":"m"}`, 0, "1", "m", CodeInvalidRequest},
		{"a text for params", `{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}`, 0, "1", "m", CodeInvalidRequest},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := Parse([]byte(test.line))
			code := 0
			if err != nil {
				code = err.Code
			}
			id, _ := json.Marshal(m.ID)
			if code != test.code || m.Kind != test.kind && code == 0 || string(id) != test.id || m.Method != test.method {
				t.Errorf("got kind %d, id %s, method %q, error %v", m.Kind, id, m.Method, err)
			}
		})
	}
}

func TestKeysOfEqualIDsAreEqual(t *testing.T) {
	key := func(raw string) string {
		id, ok := ParseID(json.RawMessage(raw))
		if !ok {
			t.Fatalf("%s is no id", raw)
		}
		return id.Key()
	}
	if key(`"p1"`) != key(`"p\u0031"`) {
		t.Error("the same text written in two ways")
	}
	if key(`"1"`) == key(`1`) {
		t.Error("a text and a number")
	}
}

func TestLinesAreWhole(t *testing.T) {
	id, _ := ParseID(json.RawMessage(`"<\u2028>"`))
	notification, err := Notify("m", map[string]string{"a": "x\n<y>"})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		string(Answer(id, struct{}{})):              `{"jsonrpc":"2.0","id":"<\u2028>","result":{}}` + "\n",
		string(Fail(ID{}, Errorf(CodeParse, "no"))): `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}` + "\n",
		string(notification):                        `{"jsonrpc":"2.0","method":"m","params":{"a":"x\n<y>"}}` + "\n",
	}
	for got, want := range tests {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := string(Answer(id, func() {})); !strings.Contains(got, `"code":-32603`) {
		t.Errorf("a result that cannot be marshalled: %s", got)
	}
}

// FuzzReader: whatever the line, the reader neither panics nor hangs; what it takes for a request can be answered under the same
// id, and what it refuses gets an error that is a frame itself.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, `{"jsonrpc":"2.0","id":"\ud800","method":"m"}`,
		`[]`, `{}`, `{"id":1e400}`, `{"id":-0,"method":"m","jsonrpc":"2.0"}`, "\xff", `{"a":{"b":[1,2,{"c":null}]}}`, `{"error":5,"id":2}`,
		`{"jsonrpc":"2.0","method":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, bad := Parse(line)
		if bad != nil {
			answer := Fail(m.ID, bad)
			if !json.Valid(answer) || strings.Count(string(answer), "\n") != 1 {
				t.Fatalf("error answer %q", answer)
			}
			return
		}
		if m.Kind == 0 || m.Kind == Response && m.Method != "" {
			t.Fatalf("message %+v", m)
		}
		answer := Answer(m.ID, struct{}{})
		echoed, bad := Parse(answer)
		if bad != nil || echoed.Kind != Response || m.Kind == Request && echoed.ID != m.ID {
			t.Fatalf("answer %q to %q", answer, line)
		}
	})
}
