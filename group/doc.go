// Package group holds the contract of state machines, and one replica of one
// replicated group around raft.RawNode.
//
// # For programs that embed a node
//
// Such a program meets this package through what it implements:
//
//   - [StateMachine] is the state that a group replicates: Apply, Snapshot,
//     Restore, Close. It is all that is needed of one that lives in memory.
//   - [Durable] adds that it keeps its own state on disk.
//   - [Querier] adds that it can be asked from nodes without a replica.
//   - [Hasher] adds that replicas can be compared, [Sizer] that it knows its size.
//   - [Destroyer] adds that it stores outside of the directory that it is given.
//   - [Factory] opens one, told by [Env] for which replica. node.Config.Kinds maps
//     the names of kinds to factories.
//
// [Command] and [Result] are what goes in and out, [Consistency] says how fresh a
// read must be, [Limits] bounds sizes and queues. The package grouptest checks a
// state machine against the contract; docs/embedding.md tells the whole story. The
// rest of this package is driven by package node, whose own errors and calls are
// what programs see.
//
// # The replica
//
// A [Replica] is a pure state machine. Inputs go in (ticks, messages, proposals,
// reads, membership changes), one [Output] at a time comes out, and whoever drives
// the replica does the work that the output lists:
//
//	for r.HasReady() {
//		out := r.Ready()
//		send(out.Messages)
//		install(out.Install) // a snapshot from the leader: state machine first
//		save(out.Save)       // one durable write
//		send(out.After)      // what vouches for that write
//		apply(out.Apply)     // in order, on any goroutine
//		tell(out.Reads, out.Outcomes)
//		r.Advance()
//	}
//
// The package starts no goroutine, reads no clock and does no I/O, so that the
// same code runs under a worker with thousands of replicas and under a
// single-threaded simulation.
//
// # Promises
//
// A proposal, a membership change and a read that were accepted have exactly one
// outcome: applied, certainly not applied (see [NotApplied]), or [ErrUnknown].
// The package never proposes anything twice.
//
// No message that vouches for something durable is in [Output.Messages] while
// what it vouches for is still in [Output.Save].
//
// The membership is a [Descriptor] that every change carries whole. A change is
// checked when it is proposed and again, by a pure function of the descriptor
// before it, when it is applied; an invalid one changes nothing, on every replica
// alike. The [State] of an index is in the Save that comes before the Apply of
// that index.
//
// What comes from outside is checked: [Replica.Step] returns an error for
// messages on which raft would panic. What cannot be, a broken log or a broken
// invariant, is a panic whose value is a [*FaultError], or the error with which the
// storage failed; the driver recovers it and stops this one replica.
package group
