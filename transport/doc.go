// Package transport carries raft messages, requests and snapshots between the
// nodes of a cluster. A node has one [Transport] for all its groups:
//
//	t, err := transport.Listen(transport.Config{
//		Identity: identity,
//		Listen:   "10.0.0.1:8701",
//		Resolve:  addressBook.Lookup,
//		Handler:  node,
//	})
//	t.Send(envelopes)                           // never blocks, may lose
//	answer, err := t.Request(ctx, 2, kind, body) // at most once
//	err = t.SendSnapshot(ctx, envelope, body)    // until the receiver's verdict
//
// # Connections
//
// A node dials every peer that it sends to, and only reads (and answers) on
// what its peers have dialled, so a pair of nodes has up to three long-lived
// connections in each direction:
//
//	class     carries                      when
//	raft      batches of envelopes         from the first Send on, for ever
//	request   requests and their answers   from the first Request on
//	snapshot  one snapshot                 while it is sent
//
// The classes are separate because a receiver that is slow to take bulk data
// holds up whatever shares its connection: no priority at the sender helps once
// bytes are in socket buffers.
//
// A connection begins with a handshake that carries cluster, node, store, boot
// counter and protocol versions of both ends, the node that the dialler means to
// reach, and where each end is reached itself. Another cluster, another node than
// expected, a node that talks to itself, a second process under the same node id,
// and a node that runs an older copy of its directory are refused. A refusal by the
// acceptor reaches the dialler, so both ends know why, and both log it at most once a
// minute; one by the dialler, after the welcome, is known and logged only there.
//
// # What is promised
//
//   - Send never blocks. Envelopes to one peer arrive in the order in which they
//     were sent, each at most once on a connection, or not at all. What is dropped
//     is counted, and reported through [Handler.HandleUnreachable].
//   - A Request is handled at most once. Its error says whether it may have been:
//     see [NotDelivered].
//   - SendSnapshot returns once the receiver has answered. A receiver never sees
//     a clean end of a stream that is cut short or damaged.
//   - Nothing that a peer sends reaches the [Handler] unchecked (see [Handler]),
//     makes the transport panic, or makes it allocate more than the configured
//     limits. A peer that stops reading or answering holds up nobody but itself,
//     and is noticed within about Config.DeadAfter, also on an idle connection.
//   - Every queue has a bound in bytes and in number; goroutines are O(peers) and
//     gone when Close returns.
//
// Sockets are plain TCP unless Config.Listener and Config.Dial bring something
// else, such as TLS; [Memory] brings a network in memory for tests, with cuts,
// delay, loss, duplication and reordering. The formats on the wire are described
// in docs/formats/transport.md and pinned by golden tests.
package transport
