package agent

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-go/dsh/sdk/agents"
)

const (
	logSuffix  = ".jsonl"
	infoSuffix = ".info" // what List shows of a session, so that it reads no log
)

// store is the directory of the sessions' files: per session its log, and its info, which can be made anew from the log.
type store struct{ dir string }

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

func (st store) readInfo(id string) (info, error) {
	var i info
	text, err := os.ReadFile(filepath.Join(st.dir, id+infoSuffix))
	if err == nil && json.Unmarshal(text, &i) == nil && i.Cwd != "" {
		return i, nil
	}
	return st.infoFromLog(id)
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

// listed is an entry of the list.
type listed struct {
	id string
	info
}

const maxPage = 100

var errToken = errors.New("the page token is not one of an earlier answer")

// list returns a page of the stored sessions, newest first, and the token of the next page.
func (st store) list(cwd, token string, size int) ([]listed, string, error) {
	after, err := parseToken(token)
	if err != nil {
		return nil, "", err
	}
	if size <= 0 || size > maxPage {
		size = maxPage
	}
	entries, err := os.ReadDir(st.dir)
	if err != nil {
		return nil, "", err
	}
	var all []listed
	for _, entry := range entries {
		id, isLog := strings.CutSuffix(entry.Name(), logSuffix)
		if !isLog || !validID(id) {
			continue
		}
		i, err := st.readInfo(id)
		if err != nil || cwd != "" && filepath.Clean(i.Cwd) != filepath.Clean(cwd) {
			continue // deleted meanwhile, or a crash came before it was created
		}
		if l := (listed{id, i}); token == "" || newestFirst(after, l) < 0 {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, newestFirst)
	if len(all) <= size {
		return all, "", nil
	}
	return all[:size], all[size-1].token(), nil
}

func newestFirst(a, b listed) int {
	return cmp.Or(b.Updated.Compare(a.Updated), cmp.Compare(b.id, a.id))
}

func (l listed) token() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", l.Updated.UnixNano(), l.id))
}

func parseToken(token string) (listed, error) {
	if token == "" {
		return listed{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	nanos, id, found := strings.Cut(string(text), " ")
	n, numberErr := strconv.ParseInt(nanos, 10, 64)
	if err != nil || !found || numberErr != nil {
		return listed{}, errToken
	}
	return listed{id, info{Updated: time.Unix(0, n)}}, nil
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
