package host

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/control"
	"github.com/dsh-go/dsh/host/router"
)

// openControl opens the control socket: all seams, the host's own "control" among them, as the caller row "cli".
func (h *Host) openControl() error {
	if h.options.Control == nil {
		return nil
	}
	socket := h.controlSocket()
	var err error
	h.control, err = h.router.Listen(socket, 0, &router.Caller{Row: "cli"}, h.registerSeams)
	if err == nil {
		h.log.Info("the control socket is open", "socket", socket)
	}
	return err
}

func (h *Host) controlSocket() string { return filepath.Join(h.dir, control.SocketName) }

func (h *Host) registerControl(s grpc.ServiceRegistrar) {
	control.Register(s, h, control.Info{
		PID: os.Getpid(), Config: absolute(h.options.Config.File), Started: h.started, Seams: slices.Sorted(maps.Keys(h.seams)),
		Socket: h.controlSocket(),
	}, h.options.Control)
}

// absolute is the absolute path of a file; what is no file stays: the name of a configuration that is built in.
func absolute(file string) string {
	path, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	if _, err := os.Stat(path); err != nil {
		return file
	}
	return path
}

func (h *Host) closeControl() {
	if h.control != nil {
		h.control.Close()
	}
}
