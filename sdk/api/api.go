// Package api holds the seams of dsh: protobuf files under proto, and what is generated from them, one package a seam.
// Together with the few facts below it is the only thing that the host and the plugins share.
package api

import (
	"context"
	"net"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

//go:generate go tool -modfile=../../tools/go.mod buf lint
//go:generate go tool -modfile=../../tools/go.mod buf generate

// Handshake is what the host puts into a plugin's environment, and what both print and expect on the handshake line.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  1,
	MagicCookieKey:   "DSH_PLUGIN",
	MagicCookieValue: "d57e1f04-0a5c-4f0e-9a0d-6d5f5c8a7f21",
}

// Environment variables of a plugin process.
const (
	// EnvHostPID is the process id of the host: the only process a plugin takes calls from.
	EnvHostPID = "DSH_HOST_PID"
	// EnvLivenessFD is the number of an inherited file descriptor that reaches its end when the host is gone.
	EnvLivenessFD = "DSH_LIVENESS_FD"
)

// Metadata of calls. Keys that begin with MetadataPrefix are the host's: the router drops them from what a plugin sends, but for
// MetadataClaim.
const (
	MetadataPrefix = "dsh-"
	// MetadataCaller is the calling row's id, stamped by the router.
	MetadataCaller = "dsh-caller"
	// MetadataClaim is the claim's key that a call carries.
	MetadataClaim = "dsh-claim"
)

// The topics of the host's own events.
const (
	// TopicToolsChanged: the list of tools, or of modes, is another one. Also what a provider or hook publishes, for the host alone, when
	// its own has changed.
	TopicToolsChanged = "tools.changed"
	// TopicClaimLost: an instance that had been replaced has died, and with it the work behind a claim. The event's key is the claim's, its
	// data says how the instance died. Of the claims of an active instance its successor hears by its activation.
	TopicClaimLost = "claim.lost"
)

// MaxMessageBytes limits one message of a call: a frame of 64 MiB and what wraps it.
const MaxMessageBytes = 64<<20 + 1<<20

// windowBytes is the flow-control window of a stream and of a connection: room for what large results need, and a bound on what a slow
// reader makes the host hold. A fixed window also spares gRPC's own estimate, which costs a ping now and then.
const windowBytes = 1 << 20

// Dial returns a connection to the unix socket at path. It connects with the first call.
func Dial(path string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return grpc.NewClient("passthrough:///dsh", append([]grpc.DialOption{
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithDisableServiceConfig(),
	}, options...)...)
}

// ServerOptions are the options that every server on a unix socket of dsh has.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
	}
}
