package node

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/group"
)

// The log of a group is bounded in bytes as well as in entries: an entry may have a
// megabyte, and ten thousand of them are more than a disk should keep for one group.

const (
	// stateShare is the part of the state that a log may have without being cut: of a
	// large state a longer log is kept, since a follower that needs more than the log
	// gets all of the state.
	stateShare = 8

	// maxPinned is how many bytes of log a snapshot that is being sent may hold, or as
	// many as the state has, if that is more. With so much to come behind it, it is of
	// no more use than the next one.
	maxPinned = 1 << 30

	// snapshotRetry is the part of the usual distance after which a snapshot that has
	// failed is tried again.
	snapshotRetry = 10
)

// noteSize notes how large the state in the newest snapshot is: as large as the file that it
// is in, or as the snapshot says.
func (r *replica) noteSize(snap *raftpb.Snapshot) {
	r.snap.size = int64(r.meta.Floor.Check.Size)
	if m, err := group.DecodeManifest(snap.GetData()); err == nil {
		r.snap.size = max(r.snap.size, m.Size)
	}
}

// logBytes is how much log the replica keeps behind its newest snapshot.
func (r *replica) logBytes() int64 {
	return max(r.worker.node.cfg.LogBytes, r.snap.size/stateShare)
}

// snapshotBytes is how much log there is when a snapshot is due. One that is a file is
// written as a whole: no more of them than of the log itself.
func (r *replica) snapshotBytes() int64 {
	if r.meta.Floor.File != "" {
		return max(r.worker.node.cfg.LogBytes, r.snap.size)
	}
	return r.logBytes()
}

// snapshotDue reports whether so much was applied since the last snapshot that the next
// one is to be taken.
func (r *replica) snapshotDue() bool {
	return r.snap.next != 0 &&
		(r.applied.Load() >= r.snap.next || r.snap.passed >= r.snapshotBytes())
}

// postpone has a snapshot that has failed be tried again later, not at every apply.
func (r *replica) postpone() {
	r.snap.next = r.applied.Load() + max(r.snapshotEvery()/snapshotRetry, 1)
	most := r.snapshotBytes()
	r.snap.passed = min(r.snap.passed, most-most/snapshotRetry)
}

// compactTo is the last entry that may go when there is a snapshot at index: a window stays
// for followers that are a little behind, and what comes behind a snapshot that is being
// sent, or was, to a member that has not caught up since.
func (r *replica) compactTo(index uint64) uint64 {
	window := index - min(index, r.meta.State.Descriptor.TrailingEntries)
	window = max(window, r.log.Within(index, r.logBytes()))
	to := r.pins.bound(window)
	if to < window {
		to = max(to, min(window, r.log.Within(index, max(maxPinned, r.snap.size))))
	}
	if at := r.followed(window); at < to {
		// More than the state has is of no use: sending that again is shorter.
		most := max(r.worker.node.cfg.LogBytes, r.snap.size)
		to = max(at, min(to, r.log.Within(index, most)))
	}
	if first, _ := r.log.Bounds(); to < first {
		return 0
	}
	return to
}
