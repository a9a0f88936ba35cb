package tool

import (
	"strings"
	"unicode/utf8"
)

// decoder makes valid text of bytes that come in pieces. A character that is split between pieces is held back until its rest
// comes. Each maximal invalid sequence becomes one U+FFFD, as in browsers.
type decoder struct {
	rest []byte // the beginning of a character
}

func (d *decoder) decode(p []byte) string {
	if len(d.rest) == 0 && utf8.Valid(p) {
		return string(p)
	}
	p = append(d.rest, p...)
	d.rest = nil
	var text strings.Builder
	text.Grow(len(p))
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		if r == utf8.RuneError && size == 1 {
			if !utf8.FullRune(p) {
				d.rest = append(d.rest, p...)
				break
			}
			size = invalidPrefix(p)
		}
		text.WriteRune(r)
		p = p[size:]
	}
	return text.String()
}

// flush returns what is held back.
func (d *decoder) flush() string {
	if len(d.rest) == 0 {
		return ""
	}
	d.rest = nil
	return string(utf8.RuneError)
}

// invalidPrefix is the length of the longest beginning of p that could have been the beginning of a character, at least 1.
func invalidPrefix(p []byte) int {
	n := 1
	for n < len(p) && !utf8.FullRune(p[:n]) && !utf8.FullRune(p[:n+1]) {
		n++
	}
	return n
}

// validText is text with everything invalid replaced.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var d decoder
	return d.decode([]byte(text)) + d.flush()
}
