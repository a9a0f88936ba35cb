// Package host is the kernel of dsh: it starts a process for each row of the configuration, activates what can be active in
// dependency order, carries the calls between them, and replaces any of them while the others serve.
//
// # Who does what
//
// One goroutine, that of [Host], owns the rows: it takes one message at a time, changes their state, and asks the plan (plan.go, a pure
// function) what to do next. Everything slow (starting a process, a life-cycle call, a build) runs elsewhere and comes back as a
// message. Package process knows how to run a program, router whom a call goes to, tools what a tool call passes through; none of them
// knows a concrete plugin.
//
// # The life of a row
//
//   - Start: the processes of all rows are started at once and describe themselves; only then is planned. A row is activated when all
//     that it requires is active; until then it is pending, and says for what.
//   - Crash: the row's process is started again, at once and then after longer and longer pauses; calls that were in flight fail with the
//     word on how it died, new ones are held. Rows that need it stay active. A row that crashes five times within a minute fails, and
//     those who need it are deactivated, the last in the chain first.
//   - Reload: a successor is started and described beside the instance that serves. Calls are held, the old instance lets go of what
//     cannot be shared and leaves its checkpoint, the new one is activated with it, and the held calls go there. Whatever fails on the way
//     takes the old instance back into service. It stays until nothing is left of its work: calls in flight, and claims.
//   - Change of the configuration: only rows whose entry changed are touched. All of the change comes about, or none of it.
//   - Stop: every instance hears of it, then rows are deactivated: those first that nobody needs any more.
//
// # What is ordered, and what is not
//
// Life-cycle calls of one instance never overlap, except that Retire may come during Activate. Reloads of one row follow each other;
// of those that wait the newest is carried out. Calls between plugins are not ordered among each other; the messages of one stream are.
// A call is never run twice. Calls that were held go to the successor in no particular order.
package host
