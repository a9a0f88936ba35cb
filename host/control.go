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

// openControl opens the control socket: the control service, and beside it all seams, as the caller row "cli".
func (h *Host) openControl() error {
	if h.options.Control == nil {
		return nil
	}
	socket := filepath.Join(h.dir, control.SocketName)
	info := control.Info{
		PID: os.Getpid(), Config: absolute(h.options.Config.File), Started: h.started, Seams: slices.Sorted(maps.Keys(h.seams)), Socket: socket,
	}
	var err error
	h.control, err = h.router.Listen(socket, 0, &router.Caller{Row: "cli"}, func(s grpc.ServiceRegistrar) {
		h.registerSeams(s)
		control.Register(s, h, info, h.options.Control)
	})
	if err == nil {
		h.log.Info("the control socket is open", "socket", socket)
	}
	return err
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
