// Package executor builds a provider of the bash seam on local processes: it spawns commands, collects and spills their output,
// kills them with all they started, and keeps the background tasks with their owners.
//
// # Usage
//
// An executor plugin calls [Serve] during its activation. What may differ between executors is policy: the limits in
// [Options], and a [Policy] that sees each process before it is started and may prefix, confine or relocate it.
//
//	sdk.Manifest{Name: "my-executor", Provides: []sdk.Seam{bash.Seam}, Injects: executor.Injects(), …}
//
//	func activate(c *sdk.Context, config Config) error {
//		return executor.Serve(c, executor.Options{Timeout: 2 * time.Minute, Policy: sandbox})
//	}
//
// # What holds for every command
//
// A command is the text of `bash -c`, byte for byte. Its shell leads a session and a process group of its own, its stdin is
// /dev/null. A call ends when its shell ends; a child that the shell leaves behind keeps running, its output is thrown away.
// Killing a command means its group, its session, everything that descends from it and everything that carries its mark in the
// environment: SIGTERM, after the grace period SIGKILL, until nothing is left. A shell that has ended stays unreaped while its
// group is signalled, so that the number of the group cannot have become another's.
//
// # What holds for the executor
//
// No command outlives it. A deactivation kills and waits. When the executor is killed itself, the kernel kills the shells
// (parent-death signal) and the guard everything else: a companion process, this program started again, that waits for the
// executor's end (see guard.go). On Linux orphans of commands become children of the executor and are reaped by it. One thing
// escapes a killed executor, though not a living one: a process that has left the session, emptied its environment and lost its
// parent.
//
// # What a reload leaves
//
// An executor that has been replaced keeps what runs and gives what has ended, or ends later, to the one that serves now: the record, what
// nobody has read of the output, the spill file and the claim. For that its manifest has what [Injects] returns. Its successor may be
// another plugin, in another row.
//
// # What a crash leaves
//
// The instance keeps a list of its tasks with the host: those that run or have not been read to their end. A task is in it before
// its start is answered; starts at the same time share a write. After a crash the next instance says of each that it was lost, to
// its owner alone, and publishes that as the task's end. A list of an instance that retired says nothing to its successor: the
// tasks still live with the old one. If that one dies, the host says which claims were lost with it, and the instance that serves then
// tells their owners: it was told of each when the old one retired.
//
// # Concurrency
//
// Each command has one goroutine that supervises it and owns its end, one that waits for its shell, and one reader for each of
// its two outputs; none holds a thread or a buffer while it waits. One goroutine, locked to its thread, starts all processes. The
// goroutine of the executor itself reaps orphans and, at the end, kills what is left.
package executor
