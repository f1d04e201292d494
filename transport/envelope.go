package transport

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// The first byte of an envelope.
const (
	bodyMessage = 1
	bodyNotice  = 2
)

const (
	// maxEnvelopes, maxEntries and maxIDs bound what one frame holds. A decoded
	// message or entry takes up to a hundred times the bytes of an empty one on
	// the wire, and an id eight times, so the length of the frame alone would not
	// bound the memory.
	maxEnvelopes = 1 << 16
	maxEntries   = 1 << 18
	maxIDs       = 1 << 17

	// maxConfIDs bounds each list of ids in a conf state. Four such lists, and
	// targetFrame bytes of others, have less than maxIDs.
	maxConfIDs = 4096

	// minEnvelope is the size of the smallest envelope: kind, group,
	// incarnation, epoch, two replica ids, and two bytes of message.
	minEnvelope = 1 + 1 + 16 + 1 + 1 + 1 + 2

	// envelopeOverhead bounds what an envelope takes beside its message.
	envelopeOverhead = 1 + 10 + 16 + 10 + 10 + 10

	// batchOverhead bounds what a frame of envelopes takes beside them.
	batchOverhead = 10 + 10 + 3
)

// sizeEnvelope returns an upper bound of what appendEnvelope appends.
func sizeEnvelope(env *Envelope) int {
	if env.Notice != nil {
		return envelopeOverhead + 1 + 4*10
	}
	return envelopeOverhead + sizeMessage(env.Message)
}

// appendBatch appends the body of a frame of envelopes, which all go from one
// node to one other and have been checked.
func appendBatch(b []byte, from, to raftyard.NodeID, batch []Envelope) []byte {
	b = wire.AppendUvarint(b, uint64(from))
	b = wire.AppendUvarint(b, uint64(to))
	b = wire.AppendUvarint(b, uint64(len(batch)))
	for i := range batch {
		b = appendEnvelope(b, &batch[i])
	}
	return b
}

func appendEnvelope(b []byte, env *Envelope) []byte {
	kind := byte(bodyMessage)
	if env.Notice != nil {
		kind = bodyNotice
	}
	b = append(b, kind)
	b = wire.AppendUvarint(b, uint64(env.Group))
	b = wire.AppendID(b, env.Incarnation)
	b = wire.AppendUvarint(b, env.Epoch)
	b = wire.AppendUvarint(b, uint64(env.From.Replica))
	b = wire.AppendUvarint(b, uint64(env.To.Replica))
	if n := env.Notice; n != nil {
		b = append(b, byte(n.Kind))
		first, second := n.Epoch, uint64(n.NextReplica)
		if n.Kind.isOfSleep() {
			first, second = n.Turn, n.Behind
		}
		b = wire.AppendUvarint(b, first)
		b = wire.AppendUvarint(b, second)
		b = wire.AppendUvarint(b, n.Index)
		return wire.AppendUvarint(b, n.Term)
	}
	return appendMessage(b, env.Message)
}

// decodeBatch reads the body of a frame of envelopes into batch, whose memory it uses if
// that is enough. Nothing in the result is a part of body.
func decodeBatch(batch []Envelope, body []byte) ([]Envelope, error) {
	r := wire.NewReader(body)
	from := raftyard.NodeID(r.Uvarint())
	to := raftyard.NodeID(r.Uvarint())
	n := r.Count(minEnvelope)
	if n > maxEnvelopes {
		r.Fail("%d envelopes, at most %d are allowed", n, maxEnvelopes)
		n = 0
	}
	if n > cap(batch) {
		batch = make([]Envelope, n)
	}
	batch = batch[:n]
	slab := make([]messageSlab, n)
	entries, ids := 0, 0
	for i := range batch {
		env := &batch[i]
		*env = Envelope{From: Endpoint{Node: from}, To: Endpoint{Node: to}}
		decodeEnvelope(r, env, &slab[i])
		if entries += len(env.Message.GetEntries()); entries > maxEntries {
			r.Fail("more than %d entries", maxEntries)
		}
		if ids += sumIDs(env.Message); ids > maxIDs {
			r.Fail("more than %d ids in conf states", maxIDs)
		}
		if r.Err() != nil {
			break
		}
	}
	if err := r.Close(); err != nil {
		return nil, fmt.Errorf("batch of envelopes: %w", err)
	}
	return batch, nil
}

// confIDs returns the lists of ids in the conf state of a message.
func confIDs(m *raftpb.Message) [4][]uint64 {
	cs := m.GetSnapshot().GetMetadata().GetConfState()
	return [4][]uint64{
		cs.GetVoters(), cs.GetLearners(), cs.GetVotersOutgoing(), cs.GetLearnersNext(),
	}
}

func sumIDs(m *raftpb.Message) int {
	n := 0
	for _, ids := range confIDs(m) {
		n += len(ids)
	}
	return n
}

func decodeEnvelope(r *wire.Reader, env *Envelope, slab *messageSlab) {
	kind := r.Byte()
	env.Group = raftyard.GroupID(r.Uvarint())
	env.Incarnation = r.ID()
	env.Epoch = r.Uvarint()
	env.From.Replica = raftyard.ReplicaID(r.Uvarint())
	env.To.Replica = raftyard.ReplicaID(r.Uvarint())
	switch kind {
	case bodyMessage:
		env.Message = &slab.message
		decodeMessage(r, slab, uint64(env.From.Replica), uint64(env.To.Replica))
	case bodyNotice:
		env.Notice = decodeNotice(r)
	default:
		r.Fail("envelope kind %d", kind)
	}
}

func decodeNotice(r *wire.Reader) *Notice {
	n := &Notice{Kind: NoticeKind(r.Byte())}
	first, second := r.Uvarint(), r.Uvarint()
	if n.Kind.isOfSleep() {
		n.Turn, n.Behind = first, second
	} else {
		n.Epoch, n.NextReplica = first, raftyard.ReplicaID(second)
	}
	n.Index, n.Term = r.Uvarint(), r.Uvarint()
	return n
}
