// Package peer makes a unix socket tell who called: the kernel's word on the process at the other end is the identity of a
// caller, so that a command which runs under the same user cannot pose as a plugin or as the host.
package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// Credentials returns transport credentials for a server that takes connections of one process only: the given process of this
// user. pid is asked at each connection, so that it may become known after the server has started.
func Credentials(pid func() int) credentials.TransportCredentials {
	return onlyProcess{pid: pid}
}

// UserCredentials returns transport credentials for a server that takes connections of every process of this user.
func UserCredentials() credentials.TransportCredentials { return onlyProcess{} }

type onlyProcess struct {
	credentials.TransportCredentials            // nothing else is called on a server
	pid                              func() int // nil: any of this user
}

// info is the AuthInfo of an accepted connection.
type info struct{ credentials.CommonAuthInfo }

func (info) AuthType() string { return "unix-peer" }

func (o onlyProcess) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return nil, nil, fmt.Errorf("cannot tell the peer of a %T", conn)
	}
	pid, uid, err := identify(raw)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("identify peer: %w", err)
	case uid != os.Getuid():
		return nil, nil, fmt.Errorf("refused a connection of user %d: only user %d may connect", uid, os.Getuid())
	case o.pid != nil && pid != o.pid():
		return nil, nil, fmt.Errorf("refused a connection of process %d: only process %d may connect", pid, o.pid())
	}
	return conn, info{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

func (o onlyProcess) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

func (onlyProcess) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

func (o onlyProcess) Clone() credentials.TransportCredentials { return o }
