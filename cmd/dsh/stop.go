package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/control"
)

func newStop(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop a running host in order",
		Long: `Stop ends a running host as SIGTERM does: prompts are settled, tasks killed, plugins deactivated. It returns when all that has
ended.` + whichHost,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
				if err := control.NewClient(conn).Stop(ctx); err != nil {
					return fmt.Errorf("stop: %w", err)
				}
				return nil
			})
		},
	}
	addAttach(cmd, o)
	return cmd
}
