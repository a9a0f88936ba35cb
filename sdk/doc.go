// Package sdk is what a plugin of dsh is made of: a manifest, an activation, and what an active instance has of its host.
//
//	func main() { sdk.Serve(Plugin()) }
//
//	func Plugin() *sdk.Plugin {
//		return sdk.Define(sdk.Manifest{Name: "greeter", Provides: []sdk.Seam{tool.Provider}}, config{}, activate)
//	}
//
// The packages below it are the seams: sdk/tool to have tools or to call them, sdk/hook to rule over calls, sdk/bash, sdk/llm,
// sdk/agents, sdk/events and sdk/stdio. sdk/executor is the engine of a bash seam; sdk/plugintest runs a plugin in a test.
//
// # The life of an instance
//
// An instance is one process of a row. The host asks it for its manifest ([Define]), activates it, lets calls go to it, may ask it to
// retire, and deactivates it. Activation, deactivation and retirement never overlap for one instance, except that Retire may come
// during Activate.
//
//   - During activation the plugin registers what it serves ([Context.RegisterService], or the Serve function of a seam's package)
//     and may already call what it injects: required seams are active. Calls of its own seams come after activate has returned nil.
//   - When it is asked to retire ([Context.OnRetire], [Context.Retired]) it takes no new work and lets go of what cannot be shared.
//     Calls in flight go on, and it may still call. When its successor does not come up it may be asked to resume ([Context.OnResume]).
//   - When it is deactivated its [Context.Done] ends first, so that streams which would never end do; then calls in flight are
//     awaited; then the goroutines of [Context.Go]; then effects are undone, last in first out. All this within the host's time limit.
//   - When the host dies the process ends itself in the same way within two seconds; on Linux the kernel kills it at once.
//
// # Calls
//
// All calls go through the host. A plugin calls only what its manifest injects; anything else is refused as permission denied. A call
// to a seam without an active provider fails as unavailable; so does one whose provider dies, with the word on how. Deadlines and
// cancellation travel with the call. Calls of one plugin are not ordered among each other: what must come in order belongs on one
// stream.
//
// # Failures
//
// A panic in activate fails the activation, one in a call fails that call as internal, one in a goroutine of [Context.Go] ends that
// goroutine; each is logged with its stack. What a plugin prints goes to the host's log, never to a protocol.
package sdk
