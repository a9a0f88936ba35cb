package dev

import (
	"errors"
	"io/fs"
	"syscall"
)

// groupAttributes put a process into a group of its own.
func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func identify(info fs.FileInfo) identity {
	s := info.Sys().(*syscall.Stat_t)
	return identity{uint64(s.Dev), s.Ino, s.Size, s.Ctimespec.Nano()}
}

// limitReached names the limit that an error of watching comes from and how to raise it. Empty: it is no limit.
func limitReached(err error) string {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return "the limit of open files is reached (each watched file takes one); raise it with `ulimit -n 10240`"
	}
	return ""
}

// Limits are none but that of open files: kqueue opens what it watches.
func Limits() []Limit { return nil }
