// Package toolbash is what a model sees of the shell: the tools bash, bash_output and bash_kill on top of the seam `bash`.
//
// It holds no state. Tasks and who owns them are the executor's; that an owner hears of the end of its task exactly once is
// held by the events, which wait while this plugin is replaced, and by the session, which drops a repetition.
package toolbash

import (
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/events"
	"github.com/dsh-go/dsh/sdk/tool"
)

// Plugin returns the plugin tool-bash.
func Plugin() *sdk.Plugin {
	return sdk.Define(sdk.Manifest{
		Name:     "tool-bash",
		Version:  "1.0.0",
		Provides: []sdk.Seam{tool.Provider},
		Injects:  []sdk.Injection{bash.Seam.Required(), events.Seam.Optional(), agents.Seam.Optional()},
	}, sdk.NoConfig{}, activate)
}

func activate(c *sdk.Context, _ sdk.NoConfig) error {
	s := shell{bash.NewClient(c.Conn())}
	if err := tool.Serve(c, s.bashTool(), s.outputTool(), s.killTool()); err != nil {
		return err
	}
	n := notifier{agents.NewClient(c.Conn())}
	events.Subscribe(c, n.taskFinished, bash.TopicTaskFinished)
	return nil
}

// shell is the tools' way to the executor.
type shell struct{ bash *bash.Client }
