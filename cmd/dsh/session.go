package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host"
	"github.com/dsh-go/dsh/host/control"
)

// withHost does one piece of work with a running host if one is named, and else with a host of its own. The context ends with the first
// signal; the second breaks off.
func withHost(o *options, stderr io.Writer, work func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	if o.attach != "" && o.config != "" {
		return errors.New("--attach and --config exclude each other: a running host has its configuration")
	}
	if socket := o.namedSocket(); socket != "" && o.config == "" {
		return withNamed(socket, work)
	}
	return withOwn(o, stderr, work)
}

// withNamed does the work with the host that listens at a control socket.
func withNamed(socket string, work func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	conn, err := control.Dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, release := onSignals(func() { conn.Close() })
	defer release()
	return work(ctx, conn)
}

// onSignals returns a context that ends with the first signal; further ones break off.
func onSignals(breakOff func()) (ctx context.Context, release func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	released := make(chan struct{})
	var handler sync.WaitGroup
	handler.Go(func() {
		for stop := cancel; ; stop = breakOff {
			select {
			case <-signals:
				stop()
			case <-released:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(released)
		handler.Wait()
		cancel()
	}
}

// withOwn starts a host for the work.
func withOwn(o *options, stderr io.Writer, work func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	options, err := o.host(stderr, hclog.Warn)
	if err != nil {
		return err
	}
	options.Control = nil // it is there for this work alone
	h, err := host.Start(options)
	if err != nil {
		return err
	}
	ctx, release := onSignals(h.Kill)
	defer release()
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
