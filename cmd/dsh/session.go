package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host"
)

// withHost runs a host of its own for one piece of work. The context ends with the first signal; the second kills.
func withHost(o *options, stderr io.Writer, work func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	options, err := o.host(stderr, hclog.Warn)
	if err != nil {
		return err
	}
	h, err := host.Start(options)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for stop := cancel; ; stop = h.Kill {
			select {
			case <-signals:
				stop()
			case <-h.Done():
				return
			}
		}
	}()
	defer func() {
		h.Stop()
		<-h.Done()
	}()
	conn, closeConn, err := h.Dial()
	if err != nil {
		return err
	}
	defer closeConn()
	if <-h.Settled(); nothingActive(h.Status()) != nil {
		return nothingActive(h.Status())
	}
	return work(ctx, conn)
}
