package node

import "github.com/raftyard/raftyard/group"

// oldState is the state that belongs to the snapshot before: the bug of
// mutant.SnapshotMembers. Nothing else calls it.
func oldState(r *replica) group.State {
	snap, err := r.log.Snapshot()
	if err != nil {
		return r.view.Load().State
	}
	m, err := group.DecodeManifest(snap.GetData())
	if err != nil {
		return r.view.Load().State
	}
	return m.State
}
