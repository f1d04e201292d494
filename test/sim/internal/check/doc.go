// Package check holds what must be true of a cluster at every moment, as pure code
// over what is seen of it. It starts nothing, reads no clock and does no I/O.
//
// A [Checker] is told what happens, in the order in which it happens:
//
//	c := check.New(check.Config{Now: clock})
//	c.Opened(node, seen)        // a node has started
//	c.Sent(node, env, unsynced) // an envelope leaves a node
//	c.Stepped(node, seen)       // something ran on a node
//	c.Applied(id, batch, results)
//	c.Acked(write)              // a client was told that its write is done
//	c.Crashed(node, check.LostNothing)
//	if c.Broken() {
//		return c.Err()
//	}
//
// and remembers every promise that was ever given: terms, votes, acknowledged
// entries, commit indexes, replica ids, applied commands. What is seen later must
// keep them.
//
// # Rules
//
// Each rule has a number, a text, and a file or a function of its own; see [Rule].
// Rules 1 to 14 are about safety and hold at all times. Rules 15 to 20 are about
// liveness: after [Checker.Healed] whoever drives the cluster asks
// [Checker.Unsettled] until nothing is left, and gives up when that takes too long.
//
// # Memory
//
// What all replicas of a group have passed is forgotten, except for the newest
// [Config].Keep indexes, so that a long run needs no more memory than a short one.
package check
