package router

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that passThrough falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// frame is a message that is passed on undecoded.
type frame struct{ data mem.BufferSlice }

// passThrough is the codec of the host's servers: frames stay bytes, the host's own messages are protobuf.
type passThrough struct{ encoding.CodecV2 }

func newPassThrough() passThrough { return passThrough{encoding.GetCodecV2("proto")} }

func (p passThrough) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		data := f.data
		f.data = nil
		return data, nil
	}
	return p.CodecV2.Marshal(v)
}

func (p passThrough) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		data.Ref()
		f.data = data
		return nil
	}
	return p.CodecV2.Unmarshal(data, v)
}

var anyStream = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// forward carries one call between its caller's stream and the target, message by message. The caller's deadline and its
// cancellation are those of the context.
func forward(in grpc.ServerStream, method string, t *Target, md metadata.MD) error {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), md))
	defer cancel()
	out, err := t.Conn.NewStream(ctx, anyStream, method, grpc.ForceCodecV2(newPassThrough()))
	if err != nil {
		return t.explain(in.Context(), err)
	}
	// It ends when this handler returns, at the latest: the caller's stream is over then. Nothing can wait for it before.
	go forwardRequests(in, out, cancel)
	if err := forwardResponses(in, out); err != nil {
		return t.explain(in.Context(), err)
	}
	return nil
}

func forwardRequests(in grpc.ServerStream, out grpc.ClientStream, cancel context.CancelFunc) {
	for {
		var f frame
		err := in.RecvMsg(&f)
		if errors.Is(err, io.EOF) {
			_ = out.CloseSend()
			return
		}
		if err != nil {
			cancel()
			return
		}
		if err := out.SendMsg(&f); err != nil {
			return // the reason comes with the response
		}
	}
}

func forwardResponses(in grpc.ServerStream, out grpc.ClientStream) error {
	for first := true; ; first = false {
		var f frame
		err := out.RecvMsg(&f)
		if first {
			if header, _ := out.Header(); len(header) > 0 {
				delete(header, "content-type")
				_ = in.SetHeader(header)
			}
		}
		if err != nil {
			in.SetTrailer(out.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := in.SendMsg(&f); err != nil {
			return err
		}
	}
}
