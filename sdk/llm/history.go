package llm

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// History is a conversation as it goes over the wire: each message is encoded once, when it is appended, and not with each request.
// The zero value is an empty one. A copy stays as it is when the original grows; only one of the two may grow.
type History struct{ encoded []byte }

// messagesField is the number of [Request]'s messages.
var messagesField = (&Request{}).ProtoReflect().Descriptor().Fields().ByName("messages").Number()

// Append adds a message. Its texts are valid UTF-8, as all are that come out of a call or out of JSON.
func (h *History) Append(m *Message) {
	h.encoded = protowire.AppendTag(h.encoded, messagesField, protowire.BytesType)
	h.encoded = protowire.AppendVarint(h.encoded, uint64(proto.Size(m))) //nolint:gosec // a size is not negative
	encoded, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(h.encoded, m)
	if err != nil {
		panic(fmt.Sprintf("llm: append a message: %v", err))
	}
	h.encoded = encoded
}

// Size is how many bytes of a request the messages take.
func (h History) Size() int { return len(h.encoded) }

// prefixed is gRPC's codec, with bytes that go before each message it encodes: a message may be sent in parts.
type prefixed struct {
	encoding.CodecV2
	prefix []byte
}

func withPrefix(prefix []byte) prefixed {
	return prefixed{encoding.GetCodecV2("proto"), prefix[:len(prefix):len(prefix)]}
}

func (p prefixed) Marshal(v any) (mem.BufferSlice, error) {
	encoded, err := p.CodecV2.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(mem.BufferSlice{mem.SliceBuffer(p.prefix)}, encoded...), nil
}
