// Package control is how people look at a running host and steer it: the service on its control socket, the client of that, and the way
// to find the socket.
package control

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

// Host is what the service needs of a host. Its methods may be called from any goroutine.
type Host interface {
	// Status tells of all rows, in the order of the configuration.
	Status() []Row
	// Reload replaces the instance of a row.
	Reload(row string) (Reload, error)
	// ReloadConfig reads the configuration again.
	ReloadConfig() (Change, error)
	// Stop begins the orderly end. The host closes the control socket when everything has ended.
	Stop()
}

// Info is what does not change while a host runs.
type Info struct {
	PID     int       `json:"pid"`
	Config  string    `json:"config"` // the file it was loaded from
	Started time.Time `json:"started"`
	Seams   []string  `json:"seams"`  // that the host itself serves
	Socket  string    `json:"socket"` // the control socket
}

// Row is what a person wants to know of a row.
type Row struct {
	ID     string `json:"id"`
	Plugin string `json:"plugin,omitempty"`
	// Phase is where the row is in its life, since Since.
	Phase string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Reason says what a pending row waits for, or why a row failed, with the place of the row.
	Reason string `json:"reason,omitempty"`
	// Generation counts the processes of the row.
	Generation int `json:"generation"`
	PID        int `json:"pid,omitempty"`
	// RSS is the memory of the process that is resident, in bytes; 0: not known.
	RSS int64 `json:"rss,omitempty"`
	// Restarts counts the crashes after which the row was started again.
	Restarts int      `json:"restarts"`
	Provides []string `json:"provides,omitempty"`
	// Contributes are those of Provides that many rows may provide.
	Contributes []string `json:"contributes,omitempty"`
	Injects     []string `json:"injects,omitempty"`
	// Optional are those of Injects that the row can do without.
	Optional []string   `json:"optional,omitempty"`
	Retiring []Retiring `json:"retiring,omitempty"`
}

// Retiring is an instance that has been replaced, but is not done.
type Retiring struct {
	Generation int   `json:"generation"`
	PID        int   `json:"pid"`
	RSS        int64 `json:"rss,omitempty"`
	// KeptBy is what is left of its work: claims and calls.
	KeptBy string `json:"keptBy,omitempty"`
}

// Reload is what the reload of a row came to.
type Reload struct {
	Row string
	// Generation of the row afterwards.
	Generation int
	// Started is how long the new process took to start and describe itself, Held how long calls were held.
	Started, Held time.Duration
}

// Change is what a change of the configuration came to, by row ids.
type Change struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
}

// Register serves a host and its logs.
func Register(s grpc.ServiceRegistrar, host Host, info Info, logs *Logs) {
	controlv1.RegisterControlServer(s, &server{host: host, info: info, logs: logs})
}

type server struct {
	controlv1.UnimplementedControlServer
	host Host
	info Info
	logs *Logs
}

func (s *server) Status(context.Context, *controlv1.StatusRequest) (*controlv1.StatusResponse, error) {
	answer := &controlv1.StatusResponse{Host: encodeInfo(s.info)}
	for _, r := range s.host.Status() {
		answer.Rows = append(answer.Rows, encodeRow(r))
	}
	return answer, nil
}

func (s *server) Reload(_ context.Context, req *controlv1.ReloadRequest) (*controlv1.ReloadResponse, error) {
	r, err := s.host.Reload(req.GetRow())
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &controlv1.ReloadResponse{
		Generation: int64(r.Generation), Started: durationpb.New(r.Started), Held: durationpb.New(r.Held),
	}, nil
}

func (s *server) ReloadConfig(context.Context, *controlv1.ReloadConfigRequest) (*controlv1.ReloadConfigResponse, error) {
	c, err := s.host.ReloadConfig()
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &controlv1.ReloadConfigResponse{Added: c.Added, Changed: c.Changed, Removed: c.Removed}, nil
}

func (s *server) Logs(req *controlv1.LogsRequest, stream grpc.ServerStreamingServer[controlv1.LogsResponse]) error {
	return s.logs.read(stream.Context(), req, stream.Send)
}

func (s *server) Stop(ctx context.Context, _ *controlv1.StopRequest) (*controlv1.StopResponse, error) {
	s.host.Stop()
	<-ctx.Done() // the host closes the socket in the end
	return nil, status.FromContextError(ctx.Err()).Err()
}
