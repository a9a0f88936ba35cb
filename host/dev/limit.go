package dev

import "fmt"

// The kinds of inotify's limits.
const (
	Watches   = "watches"   // directories
	Instances = "instances" // watchers
)

// Limit is one that the system sets on watching files. Where it is reached, a [Watcher] looks at files twice a second instead.
type Limit struct {
	What   string // Watches or Instances
	Name   string // of the kernel's setting
	Value  int    // -1: not known
	Enough int    // what it is advised to be raised to
}

// Remedy is the command that raises the limit.
func (l Limit) Remedy() string { return fmt.Sprintf("sysctl %s=%d", l.Name, l.Enough) }
