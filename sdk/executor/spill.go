package executor

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// spills are the files of an executor that take streams which are too long for memory, in a private directory that is made for
// the first.
type spills struct {
	dir   string
	limit int64
}

func (s *spills) remove() error { return removeTree(s.dir) }

// removeTree removes a directory that commands may have closed parts of.
func removeTree(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

func (s *spills) makeDir() error {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// create makes a file of its own for one stream of a command.
func (s *spills) create(name string) (*os.File, error) {
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// spill returns the file for one stream of the n-th command; it is not created yet.
func (s *spills) spill(n uint64, stream string) *spill {
	return &spill{spills: s, command: n, stream: stream}
}

// name is unguessable, and tells people whose file it is.
func (s *spill) name() string {
	random := make([]byte, 6)
	rand.Read(random)
	return fmt.Sprintf("dsh-bash-%d-%d-%s-%s.log", os.Getpid(), s.command, hex.EncodeToString(random), s.stream)
}

// spill is the file of one stream. It is created by the first write. Whatever fails costs the file, never the stream: it is
// removed and has no path then.
type spill struct {
	spills  *spills
	command uint64
	stream  string // stdout or stderr
	file    *os.File
	path    string
	size    int64
	capped  bool
	failed  bool
}

func (s *spill) write(p []byte) {
	if s.failed || s.capped || len(p) == 0 {
		return
	}
	if s.file == nil {
		file, err := s.spills.create(s.name())
		if err != nil {
			s.failed = true
			return
		}
		s.file, s.path = file, file.Name()
	}
	if left := s.spills.limit - s.size; int64(len(p)) > left {
		p, s.capped = p[:left], true
	}
	n, err := s.file.Write(p)
	s.size += int64(n)
	if err != nil {
		s.failed, s.path = true, ""
		_ = os.Remove(s.file.Name())
		s.close()
	}
	if s.capped {
		s.close()
	}
}

func (s *spill) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// where returns the path of the file, empty when it could not be written, and whether it lacks the end of the stream.
func (s *spill) where() (path string, capped bool) { return s.path, s.capped && s.path != "" }

// remove removes the file.
func (s *spill) remove() {
	if s.path != "" {
		_ = os.Remove(s.path)
	}
}
