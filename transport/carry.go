package transport

import (
	"slices"

	"github.com/raftyard/raftyard"
)

// Carry takes a batch of envelopes from one node to another without a connection:
// they are checked, encoded, decoded and checked again, just as those that travel.
// It returns what the handler of the receiver would be given, which shares no memory
// with the batch, and how many envelopes were not let through. It is for simulated
// networks.
func Carry(
	from, to raftyard.NodeID, batch []Envelope,
) (arrived []Envelope, refused int, err error) {
	passes := func(env Envelope) bool { return checkEnvelope(&env, from, to) == dropNothing }
	sent := make([]Envelope, 0, len(batch))
	for _, env := range batch {
		if passes(env) {
			sent = append(sent, env)
		}
	}
	if len(sent) == 0 {
		return nil, len(batch), nil
	}
	got, err := decodeBatch(nil, appendBatch(nil, from, to, sent))
	if err != nil {
		return nil, len(batch), err
	}
	got = slices.DeleteFunc(got, func(env Envelope) bool { return !passes(env) })
	return got, len(batch) - len(got), nil
}
