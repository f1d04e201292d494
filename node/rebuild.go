package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// RetryReplica has a node open its replica of a group again that is in quarantine, from
// what is durable there, and returns how it is afterwards. Whether the state machine gets
// further than before shows when the log is applied again. A replica that is not in
// quarantine is left alone, [ErrInvalid].
func (n *Node) RetryReplica(
	ctx context.Context, g raftyard.GroupID, at raftyard.NodeID,
) (ReplicaStatus, error) {
	return n.mend(ctx, g, at, askRetry, n.retryLocal)
}

// RebuildReplica has a node throw away the state of its replica of a group and take over
// that of another member, and returns how it is afterwards. The log is kept if it is
// sound. It waits until ctx ends, [ErrNotReached] if the state is still on its way then.
func (n *Node) RebuildReplica(
	ctx context.Context, g raftyard.GroupID, at raftyard.NodeID,
) (ReplicaStatus, error) {
	return n.mend(ctx, g, at, askRebuild, n.rebuildLocal)
}

// mend has something done with a replica where that is.
func (n *Node) mend(
	ctx context.Context, g raftyard.GroupID, at raftyard.NodeID, kind uint8,
	local func(context.Context, raftyard.GroupID) (ReplicaStatus, error),
) (st ReplicaStatus, err error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	switch {
	case g == raftyard.SystemGroup:
		return st, fmt.Errorf("%w: the system group's replica is mended by a restart", ErrInvalid)
	case at == n.cfg.ID:
		return local(ctx, g)
	}
	if _, ok := n.registry.Node(at); !ok {
		return st, fmt.Errorf("node %d: %w", at, ErrNodeNotFound)
	}
	meant, err := n.address(g)
	if err == nil {
		err = n.askJSON(ctx, at, kind, meant.append(nil), &st)
	}
	return st, err
}

// serveMend serves what another node asks of a replica in quarantine.
func (n *Node) serveMend(ctx context.Context, kind uint8, b *wire.Reader) ([]byte, error) {
	switch kind {
	case askSkip:
		return n.serveSkip(ctx, b)
	case askFaulty:
		from, limit := raftyard.GroupID(b.Uvarint()), b.Uvarint()
		return jsonAnswer(n.faultyReports(from, int(min(limit, maxPage))), b.Close())
	}
	at := readAddress(b)
	local := n.retryLocal
	switch kind {
	case askRetry:
	case askRebuild:
		local = n.rebuildLocal
	default:
		return nil, fmt.Errorf("%w: request kind %d", ErrUnsupported, kind)
	}
	if err := b.Close(); err != nil {
		return nil, err
	}
	if r := n.replica(at.group); r != nil && r.incarnation != at.incarnation {
		return nil, anotherIncarnation(at.group)
	}
	st, err := local(ctx, at.group)
	return jsonAnswer(st, err)
}

func (n *Node) retryLocal(ctx context.Context, g raftyard.GroupID) (ReplicaStatus, error) {
	r := n.replica(g)
	switch {
	case r == nil:
		return ReplicaStatus{}, fmt.Errorf("group %d on node %d: %w", g, n.cfg.ID, ErrNoReplica)
	case r.fault() == nil:
		return ReplicaStatus{}, fmt.Errorf("%w: the replica of group %d on node %d is not in "+
			"quarantine", ErrInvalid, g, n.cfg.ID)
	}
	r.attempts.Store(0)
	told := make(chan error, 1)
	n.reopen(r, &reopening{told: []chan error{told}})
	err, from := await(n.world, told, n.stopped, ctx.Done())
	switch from {
	case fromFirst:
		err = ErrClosed
	case fromSecond:
		err = fmt.Errorf("group %d: %w: it is being opened: %w", g, ErrNotReached, ctx.Err())
	case fromValues:
	}
	return n.mended(ctx, g, err)
}

// mended returns how a replica is now.
func (n *Node) mended(
	ctx context.Context, g raftyard.GroupID, err error,
) (ReplicaStatus, error) {
	if err != nil {
		return ReplicaStatus{}, err
	}
	st, err := n.RaftStatus(ctx, g)
	return st.ReplicaStatus, err
}

func (n *Node) rebuildLocal(ctx context.Context, g raftyard.GroupID) (ReplicaStatus, error) {
	r := n.replica(g)
	switch {
	case r == nil:
		return ReplicaStatus{}, fmt.Errorf("group %d on node %d: %w", g, n.cfg.ID, ErrNoReplica)
	case !r.serving():
		return n.replaceLocal(ctx, r)
	case r.machine.isLogOnly():
		return ReplicaStatus{}, fmt.Errorf("group %d: %w: %w", g, ErrInvalid, errLogOnly)
	}
	r.attempts.Store(0)
	waiting := make(chan snapshotResult, 1)
	if err := n.throwAway(ctx, r, waiting); err != nil {
		return ReplicaStatus{}, err
	}
	res, from := await(n.world, waiting, r.gone, ctx.Done())
	switch {
	case from == fromSecond:
		return ReplicaStatus{}, notRebuilt(ctx, g)
	case from == fromValues && res.err != nil:
		return ReplicaStatus{}, fmt.Errorf("group %d: no state for it: %w", g, res.err)
	}
	for n.replica(g) == r {
		if !n.world.sleep(ctx, pollEvery) {
			return ReplicaStatus{}, notRebuilt(ctx, g)
		}
	}
	var err error
	if now := n.replica(g); now != nil {
		err = now.fault()
	}
	return n.mended(ctx, g, err)
}

func notRebuilt(ctx context.Context, g raftyard.GroupID) error {
	return fmt.Errorf("group %d: %w: a state is on its way: %w", g, ErrNotReached, ctx.Err())
}

// throwAway has the state machine of a replica stand still, and the replica ask for the
// state of another member.
func (n *Node) throwAway(ctx context.Context, r *replica, waiting chan snapshotResult) error {
	v := r.view.Load()
	if n.isAlone(r) {
		return fmt.Errorf("group %d: %w: it has no other member", r.group, ErrNoState)
	}
	var ids []raftyard.NodeID
	for _, m := range v.State.Descriptor.Members {
		ids = append(ids, m.Node)
	}
	n.askForKindsOf(ctx, ids)
	if len(n.stateHolders(v.State.Descriptor, v.LeaderNode)) == 0 {
		return fmt.Errorf("group %d: %w: no other member with a state machine is connected",
			r.group, ErrNoState)
	}
	n.appliers.add(r, task{run: func(m *machine) {
		if m.fault() == nil {
			n.standStill(r, faulty(DamagedState, errThrownAway))
		}
		posted := r.worker.box.control(func() {
			r.worker.guard(r, "rebuild", func() {
				// A state from before would come to the same entry again.
				r.own.wanted, r.own.from = true, max(r.own.from, r.applied.Load())
				r.snap.waiters = append(r.snap.waiters, waiting)
				r.worker.hurryOwn(r)
			})
		})
		if !posted {
			waiting <- snapshotResult{err: ErrClosed}
		}
	}, drop: func(reason error) { waiting <- snapshotResult{err: reason} }})
	return nil
}

// errThrownAway: somebody wants the state to be that of another member.
var errThrownAway = errors.New("the state is thrown away, as somebody has asked for")

// rebuild opens a replica again that has come by a state which takes the place of its own.
func (w *worker) rebuild(r *replica) {
	if !r.own.wanted || r.machine.fault() == nil {
		return
	}
	r.own.wanted = false
	if r.attempts.Add(1) > maxPinpoints {
		return // somebody has to look
	}
	r.meta.Rebuild = true
	w.node.reopen(r, &reopening{rebuild: true})
}
