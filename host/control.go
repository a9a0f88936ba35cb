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
	info := control.Info{
		PID: os.Getpid(), Config: h.options.Config.File, Started: h.started, Seams: slices.Sorted(maps.Keys(h.seams)),
	}
	var err error
	h.control, err = h.router.Listen(filepath.Join(h.dir, control.SocketName), 0, &router.Caller{Row: "cli"}, func(s grpc.ServiceRegistrar) {
		h.registerSeams(s)
		control.Register(s, h, info, h.options.Control)
	})
	return err
}

func (h *Host) closeControl() {
	if h.control != nil {
		h.control.Close()
	}
}
