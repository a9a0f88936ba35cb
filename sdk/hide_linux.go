package sdk

import "golang.org/x/sys/unix"

// Hide keeps other processes of this user from reading the memory and the environment of this one: the commands of a model run as
// the same user, and both may hold secrets. [Serve] does so once the plugin is active. It does not keep root out.
func Hide() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
