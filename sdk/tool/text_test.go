package tool

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestEachMaximalInvalidSequenceIsOneReplacement(t *testing.T) {
	for in, want := range map[string]string{
		"plain é €":        "plain é €",
		"\xff\xfe":         "\uFFFD\uFFFD",
		"\xe2\x82":         "\uFFFD",
		"\xe2\x82a":        "\uFFFDa",
		"\xe2\x82\xe2\x82": "\uFFFD\uFFFD",
		"\xf0\x9f\xa6":     "\uFFFD",
		"\xf0\x9f\xa6\xf0": "\uFFFD\uFFFD",
		"\x80\x80":         "\uFFFD\uFFFD",
		"\xe0\x80\x80":     "\uFFFD\uFFFD\uFFFD", // overlong
		"\xed\xa0\x80":     "\uFFFD\uFFFD\uFFFD", // a surrogate
		"\xef\xbf\xbd":     "\uFFFD",             // the real one
		"a\xc3":            "a\uFFFD",
		"\xc3\xc3\xa9":     "\uFFFDé",
		"\xf5\x80":         "\uFFFD\uFFFD",
		"\xf4\x90\x80\x80": "\uFFFD\uFFFD\uFFFD\uFFFD",
	} {
		if got := validText(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestHowBytesAreCutMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]string{"a", "é", "€", "🦊", "\xe2", "\x82", "\xf0\x9f", "\xff", "\x80", "\n"})
		whole := strings.Join(rapid.SliceOfN(alphabet, 0, 20).Draw(t, "bytes"), "")
		want := validText(whole)
		var d decoder
		var got strings.Builder
		for rest := whole; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			piece := d.decode([]byte(rest[:n]))
			if !utf8.ValidString(piece) {
				t.Fatalf("piece %q is no UTF-8", piece)
			}
			got.WriteString(piece)
			rest = rest[n:]
		}
		got.WriteString(d.flush())
		if got.String() != want {
			t.Fatalf("%q became %q, want %q", whole, got.String(), want)
		}
	})
}
