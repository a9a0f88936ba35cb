package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk/api"
)

// SocketName is the name of the control socket in the private directory of a host.
const SocketName = "control"

// SocketBases are the directories below which hosts have their private directories, the preferred one first.
func SocketBases(getenv func(string) string) []string {
	name := "dsh-" + strconv.Itoa(os.Getuid())
	var bases []string
	for _, parent := range []string{getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if parent != "" {
			bases = append(bases, filepath.Join(parent, name))
		}
	}
	return bases
}

// Find returns the control sockets of the hosts of this user that run: those below the first base where there are any.
func Find(getenv func(string) string) []string {
	var found []string
	for _, base := range SocketBases(getenv) {
		if len(found) > 0 || !isPrivate(base) {
			continue
		}
		dirs, _ := os.ReadDir(base)
		for _, dir := range dirs {
			if socket := filepath.Join(base, dir.Name(), SocketName); answers(socket) == nil {
				found = append(found, socket)
			}
		}
	}
	return found
}

// isPrivate is true for a directory that only this user can enter: another one's could hold false sockets.
func isPrivate(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(owner.Uid) == os.Getuid() && info.Mode().Perm() == 0o700
}

// answers tells whether someone listens at a socket: that of a host that was killed stays, but takes no connection.
func answers(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Dial connects to a control socket.
func Dial(socket string) (*grpc.ClientConn, error) {
	if err := answers(socket); err != nil {
		if cause := (*os.SyscallError)(nil); errors.As(err, &cause) {
			err = cause.Err // without the path, twice
		}
		return nil, fmt.Errorf("no dsh listens at %s: %w", socket, err)
	}
	return api.Dial(socket)
}
