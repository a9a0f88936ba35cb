package agent

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// index remembers what List shows, so that a long list is not read anew for every page of it. It is but a memory of the files, which other
// processes change, too.
type index struct {
	mu    sync.Mutex
	infos map[string]remembered
	// all are the sessions as they were while the directory had been changed last at changed; zero: they must be read.
	all     []listed
	changed time.Time
}

type remembered struct {
	file fs.FileInfo
	info
}

// settled is how long ago a directory must have been changed last for the next change to bear another time.
const settled = 100 * time.Millisecond

// read returns all sessions, newest first. The caller does not change them. Every info is put in place by renaming, and so changes the
// directory.
func (x *index) read(st store) ([]listed, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	begin := time.Now()
	dir, err := os.Stat(st.dir)
	if err != nil {
		return nil, err
	}
	if !x.changed.IsZero() && dir.ModTime().Equal(x.changed) {
		return x.all, nil
	}
	entries, err := os.ReadDir(st.dir)
	if err != nil {
		return nil, err
	}
	files := map[string]fs.DirEntry{}
	for _, entry := range entries {
		if id, isInfo := strings.CutSuffix(entry.Name(), infoSuffix); isInfo {
			files[id] = entry
		}
	}
	infos := make(map[string]remembered, len(files))
	x.all = nil
	for _, entry := range entries {
		id, isLog := strings.CutSuffix(entry.Name(), logSuffix)
		if !isLog || !validID(id) {
			continue
		}
		r, err := x.info(st, id, files[id])
		if err != nil {
			continue // deleted meanwhile, or a crash came before it was created
		}
		if r.file != nil {
			infos[id] = r
		}
		x.all = append(x.all, listed{id, r.info})
	}
	slices.SortFunc(x.all, newestFirst)
	x.infos, x.changed = infos, time.Time{}
	if begin.Sub(dir.ModTime()) > settled {
		x.changed = dir.ModTime()
	}
	return x.all, nil
}

// info is that of a session, whose file is nil when it has none of its own.
func (x *index) info(st store, id string, entry fs.DirEntry) (remembered, error) {
	if entry != nil {
		file, err := entry.Info()
		if err != nil {
			return remembered{}, err
		}
		if r, known := x.infos[id]; known && os.SameFile(r.file, file) && r.file.ModTime().Equal(file.ModTime()) {
			return r, nil
		}
		if i, ok := st.readInfo(id); ok {
			return remembered{file, i}, nil
		}
	}
	i, err := st.infoFromLog(id)
	return remembered{nil, i}, err
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
	all, err := st.index.read(st)
	if err != nil {
		return nil, "", err
	}
	var page []listed
	for _, l := range all {
		if cwd != "" && filepath.Clean(l.Cwd) != filepath.Clean(cwd) || token != "" && newestFirst(after, l) >= 0 {
			continue
		}
		if len(page) == size {
			return page, page[size-1].token(), nil
		}
		page = append(page, l)
	}
	return page, "", nil
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
