package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/transport"
)

// The node is the transport's handler. Everything here runs on the transport's
// goroutines and must not block, except for requests and snapshots.
var _ transport.Handler = (*handler)(nil)

// handler keeps the transport's calls out of Node's own method set.
type handler struct{ *Node }

// HandleEnvelopes gives each message to the replica that it is for. What is for
// nobody here is answered, dropped and counted, or makes a replica.
func (h *handler) HandleEnvelopes(from transport.Identity, batch []transport.Envelope) {
	if h.accept(from) != nil {
		h.metrics.messagesRefused.Add(uint64(len(batch)))
		return
	}
	for i := range batch {
		env := &batch[i]
		if env.Notice != nil {
			h.notice(&from, env)
			continue
		}
		h.message(&from, env)
	}
}

func (n *Node) message(from *transport.Identity, env *transport.Envelope) {
	r := n.replica(env.Group)
	switch {
	case r == nil || !n.addressed(r, env):
		n.strangeMessage(env)
	case n.misplaced(r, from, env) || n.waitsToFound(r) ||
		n.isHeld(r, from.Node, isCandidate(env.Message)):
		n.metrics.messagesRefused.Add(1)
	case n.fromRemoved(r, env):
		n.answer(env, transport.NoticeRemoved, r.remainsOf(r.view.Load().State))
	case env.Message.GetType() == raftpb.MsgSnap && !emptySnapshot(env.Message):
		// A state travels as a stream of its own, never in a message.
		n.metrics.messagesRefused.Add(1)
	case grows(env.Message) && n.disk.current() >= DiskFloor:
		n.metrics.messagesDropped.Add(1) // the leader goes on without this node
	default:
		n.helpCandidate(r, env)
		n.deliver(inbound{r: r, from: from.Node, m: env.Message})
	}
}

// misplaced reports whether a message comes out of another directory than its sender was
// given to, or would go into another than this replica was given to.
func (n *Node) misplaced(r *replica, from *transport.Identity, env *transport.Envelope) bool {
	return !r.view.Load().isFrom(env.From.Replica, raftyard.StoreID(from.Store))
}

// deliver puts something into the mailbox of a replica's worker, or drops it.
func (n *Node) deliver(in inbound) {
	if !in.r.worker.box.message(in, messageSize(in.m)) {
		n.metrics.messagesDropped.Add(1)
		n.metrics.refuse(workerQueueLimit)
	}
}

// addressed reports whether the envelope is for just this replica.
func (n *Node) addressed(r *replica, env *transport.Envelope) bool {
	return r.serving() && r.incarnation == env.Incarnation && r.id == env.To.Replica
}

// fromRemoved reports whether the sender has been removed from the group and
// does not know.
func (n *Node) fromRemoved(r *replica, env *transport.Envelope) bool {
	v := r.view.Load()
	_, member := v.State.Descriptor.Member(env.From.Replica)
	if mutant.On(mutant.EpochIgnored) {
		return v.initialized() && !member
	}
	if !v.initialized() || env.Epoch >= v.State.Descriptor.Epoch {
		return false
	}
	return !member && env.From.Replica < v.State.Descriptor.NextReplica
}

// helpCandidate answers a sender that wants to be elected and does not know of a
// membership change that this replica has applied: it may be waiting for votes of
// replicas that are no more.
func (n *Node) helpCandidate(r *replica, env *transport.Envelope) {
	if !isCandidate(env.Message) {
		return
	}
	v := r.view.Load()
	if !v.initialized() || env.Epoch >= v.State.Descriptor.Epoch {
		return
	}
	if last := r.remainsOf(v.State); last.Index != 0 {
		n.answer(env, transport.NoticeBehind, last)
	}
}

// remainsOf is what the replica can vouch for when its members are those of a state
// that it has applied.
func (r *replica) remainsOf(state group.State) remains {
	last := remains{Descriptor: state.Descriptor}
	if term, err := r.log.Term(state.Index); err == nil {
		last.Index, last.Term = state.Index, term
	}
	return last
}

// isOpen reports whether the node has brought its replicas back. Until then it
// hears nobody: what it would answer might be wrong.
func (n *Node) isOpen() bool {
	return isClosed(n.opened)
}

// errStarting: the node cannot serve yet. The request had no effect.
var errStarting = fmt.Errorf("%w: it is starting", ErrClosed)

// emptySnapshot reports whether a MsgSnap carries all there is of the state.
func emptySnapshot(m *raftpb.Message) bool {
	manifest, err := group.DecodeManifest(m.GetSnapshot().GetData())
	return err == nil && manifest.Empty
}

// messageSize is what a message counts in a mailbox.
func messageSize(m *raftpb.Message) int {
	return 128 + entriesSize(m.GetEntries())
}

// replicaFor returns the replica that an envelope is for, and makes it if it
// ought to be here. It waits for that until ctx ends.
func (n *Node) replicaFor(ctx context.Context, env transport.Envelope) (*replica, error) {
	for {
		made := n.lifecycle.next()
		if r := n.replica(env.Group); r != nil && n.addressed(r, &env) {
			return r, nil
		}
		if err := n.awaitClaim(ctx, &env); err != nil {
			return nil, err
		}
		if _, from := await[struct{}](n.world, nil, made, ctx.Done()); from == fromSecond {
			return nil, ctx.Err()
		}
		// It may have to wait until what a former replica stored is deleted.
		if !n.world.sleep(ctx, pollEvery) {
			return nil, ctx.Err()
		}
	}
}

// awaitClaim has the claim of an envelope looked into, and returns why no replica is made for
// it. Nil: one is, if there is not one already, or the claim will be looked into again.
func (n *Node) awaitClaim(ctx context.Context, env *transport.Envelope) error {
	cl := n.lifecycle.wanted(env)
	if cl != nil {
		if _, from := await[struct{}](n.world, nil, cl.done, ctx.Done()); from == fromSecond {
			return ctx.Err()
		}
	}
	if cl == nil || cl.falls && cl.isFor(env) {
		return fmt.Errorf("group %d incarnation %v replica %d: %w",
			env.Group, env.Incarnation, env.To.Replica, ErrNoReplica)
	}
	return nil
}

// PeerChanged notes that a peer is reachable, or is not.
func (h *handler) PeerChanged(peer raftyard.NodeID, up bool) {
	if !h.isOpen() {
		return // the node looks who is connected when it is
	}
	if up {
		h.ups.Add(1)
		h.logger.Info("peer connected", nodeAttr(peer))
	} else {
		h.logger.Warn("peer lost", nodeAttr(peer))
	}
	h.bootstrapElection()
	h.keeper.poke()
	h.noteChange()
}

// HandleUnreachable tells the replicas concerned that messages were lost, so
// that they stop sending ahead.
func (h *handler) HandleUnreachable(_ raftyard.NodeID, dropped []transport.Dropped) {
	if !h.isOpen() {
		return
	}
	for _, d := range dropped {
		r := h.replica(d.Group)
		if r == nil || r.id != d.From {
			continue
		}
		r.worker.box.control(func() {
			r.worker.shield(r, "hear of a lost message", func() {
				r.raft.ReportUnreachable(d.To)
			})
		})
	}
}

// HandleSnapshot receives a snapshot; see install.go.
func (h *handler) HandleSnapshot(
	ctx context.Context, from transport.Identity, env transport.Envelope, body io.Reader,
) error {
	if err := h.accept(from); err != nil {
		return err
	}
	if h.hasNoRoomFor(env.Group) {
		return fmt.Errorf("node %d: %w", h.cfg.ID, ErrDiskFull)
	}
	if r := h.replica(env.Group); r != nil && h.isHeld(r, from.Node, false) {
		return errStarting
	}
	err := h.receiveSnapshot(ctx, from, env, body)
	if err != nil && !errors.Is(err, context.Canceled) {
		h.logger.Warn("snapshot refused", groupAttr(env.Group), nodeAttr(from.Node), errAttr(err))
	}
	return err
}
