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
		return inotifyLimit("watches", "524288")
	case errors.Is(err, syscall.EMFILE):
		return inotifyLimit("instances", "1024")
	}
	return ""
}

// inotifyLimit finds the limit in force: a user namespace may have a lower one.
func inotifyLimit(what, more string) string {
	name, limit := "", -1
	for _, candidate := range []string{"fs.inotify.max_user_" + what, "user.max_inotify_" + what} {
		text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(candidate, ".", "/"))
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && (limit < 0 || n < limit) {
			name, limit = candidate, n
		}
	}
	if limit < 0 {
		name = "fs.inotify.max_user_" + what
		return fmt.Sprintf("the limit of inotify %s, %s, is reached; raise it with `sysctl %s=%s`", what, name, name, more)
	}
	return fmt.Sprintf("the limit of inotify %s, %s = %d, is reached; raise it with `sysctl %s=%s`", what, name, limit, name, more)
}
