package llm

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/llmv1"
)

// Model is what an adapter implements.
type Model interface {
	// Generate sends the request to the model, emits the answer as it comes, and returns why the answer ended. It may be
	// called concurrently; emit may not. When emit fails the caller is gone: stop and return its error.
	//
	// The context ends when the caller cancels. An error's text is what a person reads: it says what to do. An error that
	// carries a gRPC status keeps its code.
	Generate(ctx context.Context, req *Request, emit func(*Event) error) (Reason, error)
}

// Lister is a [Model] that can answer as several models.
type Lister interface {
	// Models returns the models that a request may name, the default first.
	Models(ctx context.Context) ([]*ModelInfo, error)
}

// Serve registers a model as this instance's implementation of the seam. A panic of the model fails its call only.
func Serve(c *sdk.Context, m Model) {
	llmv1.RegisterLlmServer(c, &server{model: m})
}

// server adapts a Model to the generated service.
type server struct {
	llmv1.UnimplementedLlmServer
	model Model
}

func (s *server) Models(ctx context.Context, _ *llmv1.ModelsRequest) (*llmv1.ModelsResponse, error) {
	lister, ok := s.model.(Lister)
	if !ok {
		return &llmv1.ModelsResponse{}, nil
	}
	models, err := lister.Models(ctx)
	if err != nil {
		return nil, err
	}
	return &llmv1.ModelsResponse{Models: models}, nil
}

func (s *server) Generate(req *Request, stream grpc.ServerStreamingServer[Event]) error {
	reason, err := s.model.Generate(stream.Context(), req, stream.Send)
	if err != nil {
		return err // gRPC gives it the status it carries, else that of a context error, else Unknown
	}
	if reason == llmv1.Finish_REASON_UNSPECIFIED {
		return status.Error(codes.Internal, "the model adapter finished without a reason")
	}
	return stream.Send(&Event{Event: &llmv1.GenerateResponse_Finish{Finish: &llmv1.Finish{Reason: reason}}})
}
