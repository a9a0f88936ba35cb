package router

import (
	"context"
	"regexp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

// maxCheckpoint limits the state an instance leaves, in bytes.
const maxCheckpoint = 1 << 20

// HostService serves the host's own service to one instance.
type HostService struct {
	pluginv1.UnimplementedHostServer
	Router   *Router
	Provides []*pluginv1.Provide
	Target   *Target
	// Keep takes a checkpoint.
	Keep func(state []byte)
}

var validPrefix = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// Claim implements pluginv1.HostServer.
func (h *HostService) Claim(_ context.Context, req *pluginv1.ClaimRequest) (*pluginv1.ClaimResponse, error) {
	service, err := h.service(req.GetSeam())
	if err != nil {
		return nil, err
	}
	if !validPrefix.MatchString(req.GetPrefix()) {
		return nil, status.Errorf(codes.InvalidArgument, "claim: prefix %q is not made of lower-case letters and digits", req.GetPrefix())
	}
	key, err := h.Router.Claim(service, req.GetPrefix(), h.Target)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pluginv1.ClaimResponse{Key: key}, nil
}

// TakeOver implements pluginv1.HostServer.
func (h *HostService) TakeOver(_ context.Context, req *pluginv1.TakeOverRequest) (*pluginv1.TakeOverResponse, error) {
	service, err := h.service(req.GetSeam())
	if err != nil {
		return nil, err
	}
	allotted, err := h.Router.Allotted(req.GetKey())
	switch {
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	case !allotted:
		return nil, status.Errorf(codes.InvalidArgument, "claim: key %q was never allotted", req.GetKey())
	}
	h.Router.TakeOver(service, req.GetKey(), h.Target)
	return &pluginv1.TakeOverResponse{}, nil
}

// Allotted implements pluginv1.HostServer.
func (h *HostService) Allotted(_ context.Context, req *pluginv1.AllottedRequest) (*pluginv1.AllottedResponse, error) {
	allotted, err := h.Router.Allotted(req.GetKey())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pluginv1.AllottedResponse{Allotted: allotted}, nil
}

// Release implements pluginv1.HostServer.
func (h *HostService) Release(_ context.Context, req *pluginv1.ReleaseRequest) (*pluginv1.ReleaseResponse, error) {
	service, err := h.service(req.GetSeam())
	if err != nil {
		return nil, err
	}
	h.Router.Release(service, req.GetKey(), h.Target)
	return &pluginv1.ReleaseResponse{}, nil
}

func (h *HostService) service(seam string) (string, error) {
	for _, p := range h.Provides {
		if p.GetSeam() == seam {
			return p.GetService(), nil
		}
	}
	return "", status.Errorf(codes.PermissionDenied, "claim: row %q does not provide seam %q", h.Target.Row, seam)
}

// Checkpoint implements pluginv1.HostServer.
func (h *HostService) Checkpoint(_ context.Context, req *pluginv1.CheckpointRequest) (*pluginv1.CheckpointResponse, error) {
	if len(req.GetState()) > maxCheckpoint {
		return nil, status.Errorf(codes.InvalidArgument, "checkpoint: %d bytes are more than %d", len(req.GetState()), maxCheckpoint)
	}
	h.Keep(req.GetState())
	return &pluginv1.CheckpointResponse{}, nil
}
