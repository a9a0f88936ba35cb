package toolbash

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"
)

// plain is what a terminal would show of output when it is done: escape sequences are gone, and of a line that was drawn over
// (a progress bar) the last frame is left. The spill file and the person's terminal have the output as it is.
//
// Within a line it follows carriage returns, backspaces, and the sequences that erase a line or go to its beginning, a
// character taken for one column. Sequences that move between lines are dropped. A carriage return that ends a line is data:
// files have such lines.
func plain(output []byte) string {
	if bytes.IndexByte(output, '\x1b') < 0 && bytes.IndexByte(output, '\r') < 0 && bytes.IndexByte(output, '\b') < 0 {
		return string(output)
	}
	var text strings.Builder
	text.Grow(len(output))
	for line := range strings.Lines(string(output)) {
		line, end := cutLineEnd(line)
		if strings.ContainsAny(line, "\x1b\r\b") {
			line = drawn(line)
		}
		text.WriteString(line)
		text.WriteString(end)
	}
	return text.String()
}

func cutLineEnd(line string) (rest, end string) {
	for _, end := range []string{"\r\n", "\n"} {
		if rest, ok := strings.CutSuffix(line, end); ok {
			return rest, end
		}
	}
	return line, ""
}

// drawn is a line as it looks when everything in it has been drawn.
func drawn(line string) string {
	var d drawing
	for line != "" {
		if sequence := escape.FindString(line); sequence != "" {
			d.control(sequence)
			line = line[len(sequence):]
			continue
		}
		r, size := utf8.DecodeRuneInString(line)
		d.put(r)
		line = line[size:]
	}
	return string(d.cells)
}

// escape is an escape sequence of ECMA-48, also one that was cut off: a control sequence (colours, cursor), a string that ends
// with BEL or ST (titles, links), or a short one (character sets).
var escape = regexp.MustCompile(`^\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~]?)`)

// drawing is a line of a terminal.
type drawing struct {
	cells  []rune
	column int
}

func (d *drawing) put(r rune) {
	switch r {
	case '\r':
		d.column = 0
	case '\b':
		d.column = max(0, d.column-1)
	default:
		for len(d.cells) <= d.column { // more than one: the line was erased under the cursor
			d.cells = append(d.cells, ' ')
		}
		d.cells[d.column] = r
		d.column++
	}
}

func (d *drawing) control(sequence string) {
	switch sequence {
	case "\x1b[K", "\x1b[0K":
		d.cells = d.cells[:min(d.column, len(d.cells))]
	case "\x1b[1K":
		for i := range min(d.column+1, len(d.cells)) {
			d.cells[i] = ' '
		}
	case "\x1b[2K":
		d.cells = d.cells[:0]
	case "\x1b[G", "\x1b[1G":
		d.column = 0
	}
}
