package process

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLinesThatAreAlmostLogEntriesAreQuoted(t *testing.T) {
	long := strings.Repeat("x", logLineLimit) + `{"@message":5}`
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"plain\nlines", "plain\nlines"},
		{"\n\r\n", "\n\r\n"},
		{`{"@message":"m","@level":"info","@timestamp":"t","n":5}` + "\n", `{"@message":"m","@level":"info","@timestamp":"t","n":5}` + "\n"},
		{`{"message":5}` + "\n[5]\n" + `{"@message":`, `{"message":5}` + "\n[5]\n" + `{"@message":`},
		{`{"@message":5}` + "\nmore\n", `"{\"@message\":5}"` + "\nmore\n"},
		{` {"@level":null}` + "\r\n", `"{\"@level\":null}"` + "\n"},
		{`{"\u0040timestamp": []}`, `"{\"\\u0040timestamp\": []}"` + "\n"},
		{long + "\n" + `{"@message":{}}`, long + "\n" + `"{\"@message\":{}}"` + "\n"},
	} {
		for name, reader := range map[string]func(io.Reader) io.Reader{
			"at once":     func(r io.Reader) io.Reader { return r },
			"in pieces":   iotest.HalfReader,
			"end at once": iotest.DataErrReader,
		} {
			got, err := io.ReadAll(guardLog(io.NopCloser(reader(strings.NewReader(tt.in)))))
			if err != nil || !bytes.Equal(got, []byte(tt.want)) {
				t.Errorf("%s, %.80q became %.80q, %v", name, tt.in, got, err)
			}
		}
	}
}
