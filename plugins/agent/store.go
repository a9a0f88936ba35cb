package agent

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dsh-go/dsh/sdk/agents"
)

const (
	logSuffix  = ".jsonl"
	infoSuffix = ".info" // what List shows of a session, so that it reads no log
)

// store is the directory of the sessions' files: per session its log, and its info, which can be made anew from the log.
type store struct {
	dir   string
	index *index
}

func (st store) logPath(id string) string { return filepath.Join(st.dir, id+logSuffix) }

// newID returns an id that sorts by time and may stand in URLs and file names.
func newID() string {
	return time.Now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:12])
}

// validID is true for what newID returns, and never for what could lead out of the directory.
func validID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && id[0] != '-'
}

// info is what List shows of a session.
type info struct {
	Cwd     string    `json:"cwd"`
	Title   string    `json:"title,omitempty"`
	Updated time.Time `json:"updated"`
}

// writeInfo replaces the session's info. It is not synced: one that a crash damages is made anew.
func (st store) writeInfo(id string, i info) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	path := filepath.Join(st.dir, id+infoSuffix)
	if err := os.WriteFile(path+"~", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}

// readInfo is false when the info is missing or damaged.
func (st store) readInfo(id string) (info, bool) {
	var i info
	text, err := os.ReadFile(filepath.Join(st.dir, id+infoSuffix))
	return i, err == nil && json.Unmarshal(text, &i) == nil && i.Cwd != ""
}

// infoFromLog reads the beginning of a log, up to the first prompt.
func (st store) infoFromLog(id string) (info, error) {
	file, err := os.Open(st.logPath(id))
	if err != nil {
		return info{}, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return info{}, err
	}
	i := info{Updated: stat.ModTime()}
	err = readLines(file, func(line []byte) error {
		e, err := agents.Decode(line)
		switch d := e.Data.(type) {
		case *agents.SessionCreated:
			i.Cwd = d.Cwd
		case *agents.UserMessage:
			i.Title = titleOf(d.Content)
			return io.EOF
		}
		return err
	})
	if i.Cwd == "" {
		return info{}, fmt.Errorf("session %s has no readable beginning", id)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return i, nil //nolint:nilerr // Load says what is damaged; List shows what there is
	}
	return i, nil
}

// remove deletes the session's files.
func (st store) remove(id string) error {
	info := filepath.Join(st.dir, id+infoSuffix)
	for _, path := range []string{st.logPath(id), info, info + "~"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncDir(st.dir)
}
