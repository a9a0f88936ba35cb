package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/stdio"
)

func newRun(o *options) *cobra.Command {
	var develop, watch bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Load a configuration and serve until stopped",
		Long: `Run starts all plugins of a configuration and serves until its input ends or a signal stops it. Stdin and stdout belong
to the row that leases them (the editor bridge speaks the Agent Client Protocol there); the log goes to stderr.

SIGTERM, SIGINT and SIGHUP stop in order: prompts are settled, tasks killed, plugins deactivated. A second one stops at once.
SIGUSR1 loads the configuration again and touches only the rows that changed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, o, develop, watch)
		},
	}
	cmd.Flags().BoolVar(&develop, "dev", false, "build rows with a source again when it changes, and watch the configuration")
	cmd.Flags().BoolVar(&watch, "watch", false, "load the configuration again when one of its files changes")
	return cmd
}

func newDev(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "dev",
		Short: "Run, and take over every change of a plugin's source or of the configuration",
		Long: `Dev is run --dev: rows with a source are built again whenever one of the files they are made of changes, and the new
program takes over without a lost call. A build that fails is reported with file and line, and what runs serves on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, o, true, true) },
	}
}

func run(cmd *cobra.Command, o *options, develop, watch bool) error {
	options, err := o.host(cmd.ErrOrStderr(), hclog.Info)
	if err != nil {
		return err
	}
	options.Dev = develop
	return serve(options, develop || watch, cmd.InOrStdin(), cmd.OutOrStdout())
}

// serve runs a host on stdin and stdout until there is nothing left to serve.
func serve(options host.Options, watch bool, stdin io.Reader, stdout io.Writer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	// A broken stdout is an error of the write; the default would end the process before its plugins.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	options.Stdio = stdio.New(stdout)
	h, err := host.Start(options)
	if err != nil {
		return err
	}
	if watch && len(options.Config.Files) > 0 {
		h.WatchConfig()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go options.Stdio.Run(ctx, stdin) // a read of stdin cannot be interrupted: it may end with the process

	reloads := make(chan os.Signal, 1)
	signal.Notify(reloads, syscall.SIGUSR1)
	defer signal.Stop(reloads)
	var reloading sync.WaitGroup
	defer reloading.Wait()

	var failure error
	settled, inputEnded, outputSettled := h.Settled(), options.Stdio.Ended(), options.Stdio.Settled()
	stop := func() {
		h.Stop()
		settled, inputEnded, outputSettled = nil, nil, nil
	}
	for {
		select {
		case <-settled:
			settled = nil
			if failure = nothingActive(h.Status()); failure != nil || inputEnded == nil && !canLease(h.Status()) {
				stop()
			}
		case <-inputEnded:
			inputEnded = nil
			if settled == nil && !canLease(h.Status()) {
				stop()
			}
		case <-outputSettled:
			stop()
		case <-reloads:
			reloading.Go(func() { _, _ = h.ReloadConfig() }) // it logs what comes of it
		case <-signals:
			stop()
			stop = h.Kill
		case <-h.Done():
			return failure
		}
	}
}

// nothingActive is the error of a host in which no row has become active.
func nothingActive(rows []host.RowStatus) error {
	var reasons []string
	for _, row := range rows {
		if row.Phase == "active" {
			return nil
		}
		if row.Reason != "" {
			reasons = append(reasons, row.Reason)
		}
	}
	if len(reasons) == 0 {
		return errors.New("no row is enabled: nothing to serve")
	}
	return errors.New("no row could be activated:\n" + strings.Join(reasons, "\n"))
}

// canLease is true unless all rows that want stdin are out of order: then its end must end the host. A configuration without such a
// row does not care about stdin.
func canLease(rows []host.RowStatus) bool {
	wanted := false
	for _, row := range rows {
		for _, seam := range row.Injects {
			if seam == "stdio" {
				wanted = true
				if row.Phase == "active" {
					return true
				}
			}
		}
	}
	return !wanted
}
