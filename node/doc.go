// Package node runs thousands of raft replicas in one process. It is what an
// embedding program imports:
//
//	n, err := node.Open(ctx, node.Config{
//		ID: 1, Dir: dir, Cluster: "orders", Listen: "10.0.0.1:8701", Peers: peers,
//		Kinds: map[string]group.Factory{"ledger": newLedger},
//	})
//	created, err := n.CreateGroup(ctx, node.Spec{
//		ID: 7, Kind: "ledger", Voters: []raftyard.NodeID{1, 2, 3},
//	})
//	res, err := n.Propose(ctx, 7, cmd) // from any node; forwarded to the leader
//	err = node.View(ctx, n, 7, node.Linearizable, func(l *Ledger) error { ... })
//	err = n.Close(ctx) // hands over leaderships, then stops
//
// # How work flows
//
//	caller ── propose ─▶ mailbox ─▶ worker ─┬─ appends ──▶ committer: one write, one sync
//	peers ── messages ─▶ mailbox            ├─ messages ─▶ transport
//	clock ── ticks ────▶ mailbox            └─ committed ▶ applier ─▶ result to the caller
//
// A worker is one goroutine that owns many replicas; a group is pinned to a
// worker by its id, and nothing but that goroutine touches the group's raft
// state. The committer merges what all workers want to append into one synced
// write. Appliers run the state machines, in order within a group. Goroutines
// are O(cores) and O(peers), never O(groups).
//
// # Guarantees
//
// A message that vouches for a write leaves only after the sync that covers it.
// A proposal ends in exactly one of three ways: applied, with its result;
// certainly not applied ([NotApplied] is true for the error); or unknown
// ([ErrUnknownOutcome]). Nothing inside repeats a proposal that may have been
// logged. Reads are linearizable unless [Stale] is asked for. A replica whose
// log or state machine fails is stopped and shown with the reason; the others go
// on. When the log store itself fails, the node stops vouching for anything and
// [Node.Failed] is closed.
//
// docs/embedding.md says more, and examples/ has whole programs.
package node
