// Package dev turns a row's source into a program, and again whenever the source changes.
//
// # Usage
//
// [Build] builds a Go package once; its result is cached. A [Loop] builds at start and after every change, for as long as its Run runs.
// A [Watcher] is the part of it that tells when files change, and watches the configuration files too.
//
// # What counts as a change
//
// Content. Events of the file system only say when to look; what was found is compared with what was there. So a touched file, a
// changed mode or a save without an edit is no change, and a symbolic link that is turned to other content is one. A burst of saves
// is one change. Programs are compared too: a build with the same result is nothing to reload.
//
// # Concurrency
//
// Build may be called from any goroutine, for the same source as well. A Loop calls its functions one at a time, from the goroutine
// that called Run. A Watcher's methods may be called from any goroutine.
package dev

// Source is what a program is made from. One without Watch and Build is the Go package in Dir.
type Source struct {
	// Dir is the directory of the Go package, or the one that Watch and Build are relative to. It must be absolute.
	Dir string
	// Watch are patterns (see [Glob]) of the files that make up a program that is not Go.
	Watch []string
	// Build is the command that makes such a program from its files. Empty: there is nothing to make.
	Build []string
	// Env is the environment of the build. Nil: the one of this process.
	Env []string
}

func (s Source) isGo() bool { return len(s.Watch) == 0 && len(s.Build) == 0 }
