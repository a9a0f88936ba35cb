package toolbash

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPlain(t *testing.T) {
	for name, test := range map[string]struct{ output, want string }{
		"plain text":                     {"a\tb\n\n c é\n", "a\tb\n\n c é\n"},
		"colours":                        {"\x1b[31mred\x1b[0m\n", "red\n"},
		"colours of many numbers":        {"\x1b[1;38;2;1;2;3mx\x1b[m", "x"},
		"colours with colons":            {"\x1b[38:2::1:2:3mx", "x"},
		"a private sequence":             {"\x1b[?25lx\x1b[?25h", "x"},
		"a redraw":                       {"\r1%\r2%\r3%\n", "3%\n"},
		"a redraw without an end":        {"10%\r20%", "20%"},
		"a redraw that waits for more":   {"10%\r", "10%"},
		"a shorter frame draws over":     {"abc\rx\n", "xbc\n"},
		"a shorter frame that erases":    {"abc\r\x1b[Kx\n", "x\n"},
		"a frame that erases its end":    {"abc\rx\x1b[K\n", "x\n"},
		"a frame that erases the line":   {"abc\x1b[2K\rx\n", "x\n"},
		"text after an erased line":      {"abc\x1b[2Kx\n", "   x\n"},
		"erased up to the cursor":        {"abc\b\b\x1b[1Kx\n", " xc\n"},
		"to the line's beginning":        {"abc\x1b[Gx\x1b[1Gy", "ybc"},
		"backspaces":                     {"|\b/\b-\n", "-\n"},
		"a backspace at the beginning":   {"\b\ba\n", "a\n"},
		"overstruck bold":                {"N\bNA\bAM\bM", "NAM"},
		"lines of a DOS file":            {"a\r\nb\r\n", "a\r\nb\r\n"},
		"a redraw in a DOS file":         {"1%\r2%\r\n", "2%\r\n"},
		"lines are apart":                {"abc\nd\re\n", "abc\ne\n"},
		"a title":                        {"\x1b]0;make\x07ok\n", "ok\n"},
		"a link":                         {"\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\\n", "text\n"},
		"a title that never ends":        {"a\x1b]0;make\nok\n", "a\nok\n"},
		"a character set":                {"\x1b(Bx\x1b)0y", "xy"},
		"saving the cursor":              {"\x1b7x\x1b8y", "xy"},
		"a movement between lines":       {"a\n\x1b[1Ab\n", "a\nb\n"},
		"a far column takes no memory":   {"\x1b[999999999Cx", "x"},
		"a sequence that is cut off":     {"x\x1b[3", "x"},
		"a sequence that is no sequence": {"\x1b[3\x01x", "\x01x"},
		"an escape alone":                {"x\x1b", "x"},
		"an escape before a newline":     {"x\x1b\ny", "x\ny"},
		"wide characters":                {"進捗 10%\r進捗 20%\n", "進捗 20%\n"},
		"bytes that are no UTF-8":        {"\xff\n", "\xff\n"}, // made valid where they become text
		"nothing":                        {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plain([]byte(test.output)); got != test.want {
				t.Errorf("%q became %q, want %q", test.output, got, test.want)
			}
		})
	}
}

func TestPlainNeverLeavesAnEscapeNorLosesALine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"a", "é", "\x1b", "[", "]", "2K", "K", "m", ";", "\\", "\x07", "\r", "\b", "\n", " ", "(", "\xff"}))
		output := strings.Join(pieces.Draw(t, "output"), "")
		got := plain([]byte(output))
		if strings.Contains(got, "\x1b") {
			t.Fatalf("%q became %q", output, got)
		}
		if strings.Count(got, "\n") != strings.Count(output, "\n") {
			t.Fatalf("%q became %q: lines were lost", output, got)
		}
		if again := plain([]byte(got)); again != got {
			t.Fatalf("%q became %q, then %q", output, got, again)
		}
	})
}

func TestPlainTextIsLeftAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.NewReplacer("\x1b", "", "\r", "", "\b", "").Replace(rapid.String().Draw(t, "text"))
		if got := plain([]byte(text)); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}
