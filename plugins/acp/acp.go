// Package acp is the editor bridge: it speaks the Agent Client Protocol on the host's stdin and stdout and drives the sessions of
// the agents seam.
//
// # Order
//
// One reader takes the lines, decides in wire order what each is about, and never waits for the work: refusals, cancellations and
// who owns a session's next slot are settled there. The work about one session runs in its mailbox, one request after the other, a
// prompt for as long as its turn takes. Requests about no session run at once, each by itself. Everything that is written goes
// through the lease of stdout, in the order in which it was written: updates before the answer that ends them.
//
// Settings (mode, options) run beside a turn. A prompt that is a slash command is answered here, without the agent, and is not part of
// the session.
//
// # Approval
//
// A turn that asks makes a request to the editor. Its answer is taken in wire order: the first one counts, if it comes before a cancel
// and before the turn goes on without it, and only one of the offered approvals approves. A question that is over without an answer is
// withdrawn by $/cancel_request.
//
// # Back-pressure
//
// A turn takes the next event when stdout has room for the updates of the one before. A client that does not read therefore
// holds back its turns, and nothing else: the reader goes on, memory stays bounded.
//
// # Reload
//
// An instance that is replaced stops reading, lets short requests end, stops following running turns after a whole event, and
// leaves what its successor needs in the checkpoint: the live sessions, the prompts without an answer with the number of the last
// event shown and the question that is open, and the frames that stdout has not taken.
package acp

import (
	"context"
	"runtime/debug"
	"strings"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/control"
	"github.com/dsh-go/dsh/sdk/events"
	"github.com/dsh-go/dsh/sdk/stdio"
	"github.com/dsh-go/dsh/sdk/tool"
)

// Config is the row's configuration.
type Config struct {
	AgentInfo AgentInfo `json:"agentInfo" jsonschema:"how dsh introduces itself to the editor"`
	// CancelLimitMs is for plugins that do not settle: nothing else makes a cancelled prompt wait.
	Reload        bool `json:"reload,omitempty" jsonschema:"offer /reload to the editor, which replaces the instance of a row"`
	CancelLimitMs int  `json:"cancelLimitMs" jsonschema:"how long a cancelled turn may take to stop, in milliseconds; then its prompt is answered all the same"`
}

// AgentInfo is how dsh introduces itself.
type AgentInfo struct {
	Name    string `json:"name,omitempty" jsonschema:"the agent's name, for programs"`
	Title   string `json:"title,omitempty" jsonschema:"the agent's name, for people"`
	Version string `json:"version,omitempty" jsonschema:"the agent's version"`
}

// Plugin is the editor bridge.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{
		Name:    "acp",
		Version: version(),
		Injects: []sdk.Injection{
			stdio.Seam.Required(), agents.Seam.Required(), tool.Tools.Required(),
			bash.Seam.Optional(),    // for /tasks and /kill
			events.Seam.Optional(),  // to hear of tools that come and go
			control.Seam.Optional(), // for /reload
		},
	}, Config{AgentInfo: AgentInfo{Name: "dsh", Version: version()}, CancelLimitMs: 30000}, activate)
}

func activate(c *sdk.Context, config Config) error {
	b, err := newBridge(c, config)
	if err != nil {
		return err
	}
	c.OnRetire(func(ctx context.Context, reason sdk.RetireReason) {
		b.retire(reason)
		select {
		case <-b.gone:
		case <-ctx.Done():
			c.Log().Warn("the editor bridge did not settle in time")
		}
	})
	c.Go("bridge", b.run)
	events.Subscribe(c, func(context.Context, *events.Event) error {
		signal(b.toolsChanged)
		return nil
	}, api.TopicToolsChanged)
	return nil
}

// version is the program's own, as it was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "0.0.0-dev"
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}
