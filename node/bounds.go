package node

import (
	"cmp"
	"fmt"

	"github.com/raftyard/raftyard/group"
)

// Bounds says how much may wait in the memory of a node, of all groups together where it does
// not say otherwise. The zero value of every field means its default. What is more is refused
// with [ErrOverloaded], or dropped and sent again by raft; [Metrics] tells how much waits, and
// how often something was refused.
type Bounds struct {
	// PeerRequests and PeerRequestBytes bound the requests of other nodes that are served
	// here at once, and with their answers until these are written: in number, and in bytes,
	// of which there must be 16 MiB. Defaults: 2048 and 64 MiB.
	PeerRequests     int
	PeerRequestBytes int64

	// PeerQueueBytes bounds the bytes of messages that wait to be sent to one other node, and
	// of requests as much again. At least 16 MiB. Default: 64 MiB.
	PeerQueueBytes int64

	// WorkerQueueBytes bounds the bytes of messages and proposals that wait for one worker. At
	// least 16 MiB. Default: 64 MiB.
	WorkerQueueBytes int64

	// UnsavedBytes bounds the bytes of entries that leaders elsewhere have sent and that are
	// not durable yet. Groups that have none here may have as much again. At least 16 MiB.
	// Default: 128 MiB.
	UnsavedBytes int64

	// ApplyBacklogBytes bounds the bytes of committed commands that wait for state machines.
	// One group may have half of that, and groups that have none as much again, as with
	// UnsavedBytes. Proposals are refused from half of it on. At least 16 MiB.
	// Default: 128 MiB.
	ApplyBacklogBytes int64
}

// minBound is the least that a bound of bytes may be. The greatest message, with an entry and
// what goes with it, must fit in any case: what never fits would be sent for ever.
const minBound = 16 << 20

func (b Bounds) withDefaults() Bounds {
	b.PeerRequests = cmp.Or(b.PeerRequests, 2048)
	b.PeerRequestBytes = cmp.Or(b.PeerRequestBytes, 64<<20)
	b.PeerQueueBytes = cmp.Or(b.PeerQueueBytes, 64<<20)
	b.WorkerQueueBytes = cmp.Or(b.WorkerQueueBytes, 64<<20)
	b.UnsavedBytes = cmp.Or(b.UnsavedBytes, 128<<20)
	b.ApplyBacklogBytes = cmp.Or(b.ApplyBacklogBytes, 128<<20)
	return b
}

// validate returns every problem of b, whose defaults are set.
func (b Bounds) validate() []error {
	var errs []error
	if b.PeerRequests < 1 {
		errs = append(errs, fmt.Errorf(
			"node: config: Bounds.PeerRequests is %d, want at least 1", b.PeerRequests))
	}
	for _, size := range []struct {
		name  string
		bytes int64
	}{
		{"PeerRequestBytes", b.PeerRequestBytes},
		{"PeerQueueBytes", b.PeerQueueBytes},
		{"WorkerQueueBytes", b.WorkerQueueBytes},
		{"UnsavedBytes", b.UnsavedBytes},
		{"ApplyBacklogBytes", b.ApplyBacklogBytes},
	} {
		if size.bytes < minBound {
			errs = append(errs, fmt.Errorf("node: config: Bounds.%s is %d, want at least %d",
				size.name, size.bytes, minBound))
		}
	}
	return errs
}

// mostQueued is how many bytes of proposals may wait in a group.
func mostQueued(l group.Limits) int64 { return cmp.Or(l.MaxQueuedBytes, defaultMaxQueued) }
