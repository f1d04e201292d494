package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/node/registry"
)

// Skip asks for an entry to be skipped. See [Node.SkipEntry].
type Skip struct {
	// Index is that of the entry.
	Index uint64 `json:"index"`
	// Confirm is the incarnation of the group.
	Confirm string `json:"confirm"`
	// Force skips it though a member does not answer. If that one has applied the entry,
	// what it has acknowledged is lost, and its state is replaced.
	Force bool `json:"force,omitempty"`
}

// Skipped says that an entry is skipped.
type Skipped struct {
	Group raftyard.GroupID `json:"group"`
	Index uint64           `json:"index"`
	Term  uint64           `json:"term"` // of that entry
}

// SkipEntry has a group skip an entry of its log at which all its state machines fail:
// none of them applies it, now or later, and they go on behind it. It is refused,
// [ErrInvalid], while any member with a state machine has applied the entry or does not
// stand at it, and, [ErrUnhealthy], when a member cannot say so, unless forced.
//
// On an error [NotApplied] tells whether it certainly is not skipped.
func (n *Node) SkipEntry(ctx context.Context, g raftyard.GroupID, s Skip) (Skipped, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	rec, err := n.freshRecord(ctx, g)
	switch {
	case err != nil:
		return Skipped{}, err
	case g == raftyard.SystemGroup:
		return Skipped{}, fmt.Errorf("%w: the system group skips nothing", ErrInvalid)
	case rec.Incarnation.String() != s.Confirm:
		return Skipped{}, fmt.Errorf("%w: group %d is of incarnation %s, not %q",
			ErrInvalid, g, rec.Incarnation, s.Confirm)
	}
	d, _, err := n.leaderDescriptor(ctx, rec)
	if err != nil {
		return Skipped{}, err
	}
	term, err := n.checkSkip(ctx, &rec, d, s)
	if err != nil {
		return Skipped{}, fmt.Errorf("group %d: %w", g, err)
	}
	body := wire.AppendUvarint(nil, uint64(g))
	body = wire.AppendID(body, rec.Incarnation)
	body = wire.AppendUvarint(body, s.Index)
	err = n.atLeader(ctx, g, func(to raftyard.NodeID) error {
		if to == n.cfg.ID {
			return n.skipLocal(ctx, g, rec.Incarnation, s.Index)
		}
		_, askErr := n.ask(ctx, to, askSkip, body)
		return askErr
	})
	return Skipped{Group: g, Index: s.Index, Term: term}, err
}

// checkSkip asks all members whether they stand at an entry, and returns its term.
func (n *Node) checkSkip(
	ctx context.Context, rec *registry.Group, d group.Descriptor, s Skip,
) (term uint64, err error) {
	problems := make([]error, len(d.Members))
	terms := make([]uint64, len(d.Members))
	asks := make([]func(), 0, len(d.Members))
	for i, m := range d.Members {
		asks = append(asks, func() {
			short, cancel := n.world.withTimeout(ctx, askPatience)
			defer cancel()
			st, err := n.askReplica(short, m.Node, rec.ID)
			if err == nil && (st.Group.Incarnation != rec.Incarnation.String() ||
				st.Replica != m.ID) {
				err = fmt.Errorf("it does not have replica %d", m.ID)
			}
			if err != nil {
				problems[i] = fmt.Errorf("%w: node %d cannot say whether it has applied "+
					"entry %d: %s", ErrUnhealthy, m.Node, s.Index, err.Error())
				return
			}
			terms[i], problems[i] = st.standsAt(s.Index)
		})
	}
	n.world.all("ask about an entry", asks)
	term = slices.Max(terms)
	for _, problem := range problems {
		if problem != nil && (!s.Force || !errors.Is(problem, ErrUnhealthy)) {
			return 0, problem
		}
	}
	if term == 0 {
		return 0, fmt.Errorf("%w: no state machine fails at entry %d", ErrInvalid, s.Index)
	}
	return term, nil
}

// standsAt returns the term of an entry at which the replica's state machine stands, zero
// if it has none, or why the entry cannot be skipped.
func (st *RaftStatus) standsAt(index uint64) (term uint64, err error) {
	q := st.Quarantine
	switch {
	case st.LogOnly:
		return 0, nil
	case q != nil && !q.Votes:
		return 0, fmt.Errorf("%w: the replica on node %d is silent: %s",
			ErrUnhealthy, st.Node, q.Detail)
	case q == nil && st.Applied >= index:
		return 0, fmt.Errorf("%w: node %d has applied entry %d", ErrInvalid, st.Node, index)
	case q == nil:
		return 0, fmt.Errorf("%w: node %d has applied only up to entry %d, not to %d",
			ErrInvalid, st.Node, st.Applied, index)
	case q.Index != index || !q.Reason.ofEntry():
		return 0, fmt.Errorf("%w: node %d does not fail at entry %d: %s",
			ErrInvalid, st.Node, index, q.Detail)
	default:
		return q.Term, nil
	}
}

// ofEntry reports whether an entry can be the reason.
func (q QuarantineReason) ofEntry() bool {
	return q == MachineFailed || q == MachinePanicked || q == PoisonEntry
}

// skipLocal has this node's replica, which leads, put a skip into the log.
func (n *Node) skipLocal(
	ctx context.Context, g raftyard.GroupID, in raftyard.Incarnation, index uint64,
) error {
	r, err := n.serving(g)
	if err != nil {
		return err
	}
	if r.incarnation != in {
		return fmt.Errorf("group %d: %w: it is another incarnation", g, ErrNoReplica)
	}
	c := newCall(r)
	posted := r.worker.box.control(func() {
		r.worker.guard(r, "skip an entry", func() { r.worker.skip(c, index) })
	})
	if !posted {
		return ErrClosed
	}
	_, err = c.waitFor(ctx, n.answerWithin(ctx))
	return err
}

// skip proposes a skip.
func (w *worker) skip(c *call, index uint64) {
	if c.ended {
		return
	}
	c.begun = true
	if err := c.r.raft.ProposeSkip(index, c); err != nil {
		if errors.Is(err, group.ErrInvalid) {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		c.finish(group.Result{}, outcomeError(c.r, err))
		return
	}
	w.touch(c.r)
}

// serveSkip does it for another node.
func (n *Node) serveSkip(ctx context.Context, b *wire.Reader) ([]byte, error) {
	g, in, index := raftyard.GroupID(b.Uvarint()), raftyard.Incarnation(b.ID()), b.Uvarint()
	if err := b.Close(); err != nil {
		return nil, err
	}
	return nil, n.skipLocal(ctx, g, in, index)
}
