package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// chunkBytes is how much of a snapshot goes into one frame.
const chunkBytes = 256 << 10

// minChunkFrame is what the body of a chunk has beside the data: its offset.
const minChunkFrame = 8

// decodeSnapshotHead reads the frame that begins a snapshot: a batch of the one
// envelope with the MsgSnap.
func decodeSnapshotHead(body []byte, from Identity, to raftyard.NodeID) (Envelope, Reason, error) {
	batch, err := decodeBatch(nil, body)
	if err != nil {
		return Envelope{}, dropNothing, err
	}
	if len(batch) != 1 {
		return Envelope{}, dropNothing, fmt.Errorf("snapshot with %d envelopes", len(batch))
	}
	env := batch[0]
	if why := checkEnvelope(&env, from.Node, to); why != dropNothing {
		return env, why, nil
	}
	if env.Message.GetType() != raftpb.MsgSnap {
		return env, DropType, nil
	}
	return env, dropNothing, nil
}

func appendChunk(b []byte, offset uint64, data []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, offset), data...)
}

// decodeChunk returns a part of body.
func decodeChunk(body []byte, offset uint64) ([]byte, error) {
	if len(body) <= minChunkFrame || len(body) > minChunkFrame+chunkBytes {
		return nil, fmt.Errorf("chunk of %d bytes", len(body))
	}
	if at := binary.BigEndian.Uint64(body); at != offset {
		return nil, fmt.Errorf("chunk at %d, want one at %d", at, offset)
	}
	return body[minChunkFrame:], nil
}

// snapshotEnd is what ends a stream: its length and hash.
type snapshotEnd struct {
	size uint64
	hash [sha256.Size]byte
}

func appendEnd(b []byte, e *snapshotEnd) []byte {
	return append(wire.AppendUvarint(b, e.size), e.hash[:]...)
}

func decodeEnd(body []byte) (snapshotEnd, error) {
	r := wire.NewReader(body)
	e := snapshotEnd{size: r.Uvarint()}
	copy(e.hash[:], r.Raw(sha256.Size))
	if err := r.Close(); err != nil {
		return snapshotEnd{}, fmt.Errorf("end of snapshot: %w", err)
	}
	return e, nil
}

func appendAbort(b []byte, why string) []byte {
	return wire.AppendString(b, truncate(why, maxErrorText))
}

func decodeAbort(body []byte) (string, error) {
	r := wire.NewReader(body)
	why := r.String()
	if err := r.Close(); err != nil {
		return "", fmt.Errorf("abort: %w", err)
	}
	return why, nil
}

func decodeVerdict(body []byte) (answer, error) {
	r := wire.NewReader(body)
	a := readAnswer(r)
	if err := r.Err(); err != nil {
		return answer{}, fmt.Errorf("verdict: %w", err)
	}
	return a, nil
}
