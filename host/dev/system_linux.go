package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// groupAttributes put a process into a group of its own and kill it when the thread that started it ends.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func identify(info fs.FileInfo) identity {
	s := info.Sys().(*syscall.Stat_t)
	return identity{s.Dev, s.Ino, s.Size, s.Ctim.Nano()}
}

// limitReached names the limit that an error of watching comes from, its value, and how to raise it. Empty: it is no limit.
func limitReached(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC): // the kernel's word for it, not the disk
		return findLimit(Watches).reached()
	case errors.Is(err, syscall.EMFILE):
		return findLimit(Instances).reached()
	}
	return ""
}

// enough is what a limit is advised to be raised to.
var enough = map[string]int{Watches: 524288, Instances: 1024}

// Limits are those of the system on watching files.
func Limits() []Limit { return []Limit{findLimit(Watches), findLimit(Instances)} }

// findLimit finds the limit in force: a user namespace may have a lower one.
func findLimit(what string) Limit {
	found := Limit{What: what, Name: "fs.inotify.max_user_" + what, Value: -1, Enough: enough[what]}
	for _, candidate := range []string{"fs.inotify.max_user_" + what, "user.max_inotify_" + what} {
		text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(candidate, ".", "/"))
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && (found.Value < 0 || n < found.Value) {
			found.Name, found.Value = candidate, n
		}
	}
	return found
}

func (l Limit) reached() string {
	name := l.Name
	if l.Value >= 0 {
		name = fmt.Sprintf("%s = %d", l.Name, l.Value)
	}
	return fmt.Sprintf("the limit of inotify %s, %s, is reached; raise it with `%s`", l.What, name, l.Remedy())
}
