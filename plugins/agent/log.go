package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api"
)

// maxLine limits an event: as the only content of a message it must fit through every call.
const maxLine = api.MaxMessageBytes - 1<<20

var (
	errLocked   = errors.New("in use by another process")
	errTooLarge = errors.New("the event is larger than 64 MiB")
)

// eventLog is a session's file: one event a line, appended only, one writer (the lock on the file says so). Its owner serialises
// the calls. Readers open the file by its path and read up to size.
type eventLog struct {
	file *os.File
	seq  uint64 // of the last event
	size int64  // where the last event ends; beyond it is at most what a failed write left
	torn bool   // something was cut off when it was opened
}

// createLog makes a new, empty log. The caller syncs it and its directory once the first event is in.
func createLog(path string) (*eventLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		file.Close()
		return nil, err
	}
	return &eventLog{file: file}, nil
}

// openLog reads a stored log and hands its events to apply, in order. What a crash left after the last whole line is cut off, but
// only once everything before it has proved sound: a damaged file is left as it is.
func openLog(path string, apply func(agents.Event) error) (*eventLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	l := &eventLog{file: file}
	if err := l.read(path, apply); err != nil {
		file.Close()
		return nil, err
	}
	return l, nil
}

func (l *eventLog) read(path string, apply func(agents.Event) error) error {
	if err := lock(l.file); err != nil {
		return err
	}
	if err := l.scan(path, func(e agents.Event, _ []byte) error { return apply(e) }); err != nil {
		return err
	}
	return l.cut()
}

// scan reads the log up to its last whole line. It changes nothing.
func (l *eventLog) scan(path string, use func(e agents.Event, line []byte) error) error {
	err := readLines(l.file, func(line []byte) error {
		e, err := decodeNext(line, l.seq)
		if err != nil {
			return &damage{path, l.seq + 1, err, bytes.IndexByte(line, 0) >= 0}
		}
		l.seq, l.size = e.Seq, l.size+int64(len(line))+1
		return use(e, line)
	})
	var d *damage
	if errors.As(err, &d) && d.nul && l.seq > 0 && l.endsAfterNextLine() {
		return nil // a power failure left the last line's length without all of its bytes
	}
	return err
}

// decodeNext decodes the line that follows event seq.
func decodeNext(line []byte, seq uint64) (agents.Event, error) {
	e, err := agents.Decode(line)
	if err != nil {
		return e, err
	}
	if e.Seq != seq+1 {
		return e, fmt.Errorf("event %d stands after event %d", e.Seq, seq)
	}
	if _, created := e.Data.(*agents.SessionCreated); created != (e.Seq == 1) {
		return e, fmt.Errorf("event %d is %s", e.Seq, e.Type)
	}
	return e, nil
}

// cut removes what stands after the last event. The caller syncs the file.
func (l *eventLog) cut() error {
	info, err := l.file.Stat()
	if err != nil || info.Size() == l.size {
		return err
	}
	l.torn = true
	return l.file.Truncate(l.size)
}

// endsAfterNextLine is true when at most one whole line stands after the last event.
func (l *eventLog) endsAfterNextLine() bool {
	lines := 0
	err := readLines(io.NewSectionReader(l.file, l.size, 1<<62), func([]byte) error { lines++; return nil })
	return err == nil && lines <= 1
}

// damage is a line of a log that cannot be read. Event n stands in line n.
type damage struct {
	path string
	line uint64
	err  error
	nul  bool // the line has a NUL byte, which no event has
}

func (d *damage) Error() string {
	return fmt.Sprintf("%s:%d is damaged: %v; repair or delete the line and what follows it", d.path, d.line, d.err)
}

func (d *damage) Unwrap() error { return d.err }

// readLines calls use with each whole line, without its newline. What stands after the last newline is passed over.
func readLines(r io.Reader, use func([]byte) error) error {
	buffered := bufio.NewReaderSize(r, 32<<10)
	var long []byte // a line larger than the buffer
	for {
		part, err := buffered.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		line := part
		if long != nil {
			line, long = append(long, part...), nil
		}
		if err := use(line[:len(line)-1]); err != nil {
			return err
		}
	}
}

// append writes one event with one write. The event is in the log when it returns nil, and not at all otherwise.
func (l *eventLog) append(data agents.Data) (agents.Event, error) {
	e := agents.Event{Seq: l.seq + 1, Time: time.Now(), Data: data}
	line, err := agents.Encode(e)
	if err != nil {
		return e, err
	}
	if len(line) > maxLine {
		return e, errTooLarge
	}
	if n, err := l.file.WriteAt(append(line, '\n'), l.size); err != nil {
		if n > 0 {
			err = errors.Join(err, l.file.Truncate(l.size))
		}
		return e, err
	}
	l.seq, l.size = e.Seq, l.size+int64(len(line))+1
	return e, nil
}

func (l *eventLog) sync() error  { return l.file.Sync() }
func (l *eventLog) close() error { return l.file.Close() }

// lock makes this process the log's only writer until the file is closed.
func lock(file *os.File) error {
	for {
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return err
		}
	}
}

// syncDir makes the directory's entries durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
