package stdio

import (
	"bufio"
	"errors"
	"io"
)

// lineReader reads lines of any length and keeps those within a limit.
type lineReader struct {
	r     *bufio.Reader
	limit int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, 64<<10), limit}
}

// next returns a line without its newline. A line over the limit is skipped: oversized is its size then. A last line without a
// newline comes with the error.
func (l *lineReader) next() (line []byte, oversized uint64, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		switch {
		case oversized > 0:
			oversized += uint64(len(part))
		case len(line)+len(part) > l.limit:
			oversized = uint64(len(line) + len(part))
			line = nil
		default:
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return line, oversized, err
	}
}
