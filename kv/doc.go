// Package kv is raftyard's built-in state machine: a durable, ordered key-value
// store in Badger, larger than memory.
//
// A [Store] is one Badger database that all groups of a node share. Its
// [Store.Factory] opens one [Machine] for each replica; node drives it. A program
// that embeds a node opens the store first and closes it last:
//
//	store, err := kv.OpenStore(kv.StoreOptions{Dir: filepath.Join(dir, "state")})
//	n, err := node.Open(ctx, node.Config{
//		ID: 1, Dir: dir, Cluster: "orders", Peers: peers,
//		Kinds: map[string]group.Factory{"kv": store.Factory()},
//	})
//	created, err := n.CreateGroup(ctx, node.Spec{
//		ID: 7, Kind: "kv", Voters: []raftyard.NodeID{1, 2, 3},
//	})
//	...
//	err = errors.Join(n.Close(ctx), store.Close())
//
// It talks to a group, from any node, through a [Client]:
//
//	c := kv.NewClient(n)
//	rev, created, err := c.Put(ctx, 7, []byte("k"), []byte("v"), kv.Cond{Absent: true})
//	v, err := c.Get(ctx, 7, []byte("k"), node.Linearizable)
//
// The name of the kind is the program's to choose, but the HTTP handler of
// node/admin serves the keys of groups of kind "kv" only. examples/kv is a whole
// program.
//
// # Revisions
//
// A group has a revision: the number of commands that have changed its state. A
// put always counts, a delete only when there was a key to delete, a transaction
// once when at least one of its operations counted. Reads and refused commands
// do not count. A key carries the revision of the command that wrote it last
// (its revision) and of the one that made it come into being (its create
// revision). An absent key has revision 0. Revisions are part of the state:
// equal on all replicas, kept in snapshots, never used twice in a group's
// incarnation.
//
// # Durability
//
// A command is answered when its effect can be read. It is committed in the group's log, so that
// nothing is lost when it is written a little later: within 50 ms, with what other commands of
// all groups have changed. [Machine.Applied] waits for that, and the log is not cut before. With
// 8 MiB that are not written commands wait.
//
// The applied position, the counters, the content hash and the data are written in one synced
// Badger transaction, and the position advances by whole commands, so a crash leaves the state at
// exactly the recorded position.
//
// The keys of a replica lie under a generation number that the store never gives
// out twice. Restore fills a new generation in bounded steps and switches to it in
// one transaction; Destroy only unlinks. What is no longer linked is deleted in
// the background in bounded steps, which go on after a restart:
//
//	          begin restore              switch              delete finished
//	(nothing) ─────────────▶ filling ─────────────▶ live        (nothing)
//	                            │                     │              ▲
//	                            │ failed, or found    │ replaced or  │
//	                            │ at open             │ destroyed    │
//	                            └──────────────────▶ dropping ───────┘
//
// Every record carries a CRC32C over its group, its key and its value. A record
// that does not match is an error that names the key ([ErrDamaged]), never a wrong
// value. After an error of a write the store is of no more use: every call
// returns [ErrFailed].
//
// # Content hash
//
// The hash of a state is the sum modulo 2^256 of one SHA-256 for each item,
// hashed together with the item count, the byte count and the revision. The sum is
// kept in the same transaction as the data, so [Machine.Hash] costs nothing and
// a write costs one SHA-256 of the new and one of the replaced item. It finds
// divergence and damage; it is not meant to withstand somebody who chooses items
// to make two sums collide.
//
// The formats are described in docs/formats/kv.md.
package kv
