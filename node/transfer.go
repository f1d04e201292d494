package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

// TransferLeader hands the leadership of a group to the node to. It returns when
// that has happened, or says why it has not.
func (n *Node) TransferLeader(ctx context.Context, g raftyard.GroupID, to raftyard.NodeID) error {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	return n.atLeader(ctx, g, func(leader raftyard.NodeID) error {
		if leader == n.cfg.ID {
			return n.transferLocal(ctx, here(g), to)
		}
		at, err := n.address(g)
		if err == nil {
			_, err = n.ask(ctx, leader, askTransfer, wire.AppendUvarint(at.append(nil), uint64(to)))
		}
		return err
	})
}

// transferLocal hands over the leadership that this node has. Reasons that may be gone in
// a moment are waited for, two election timeouts long.
func (n *Node) transferLocal(ctx context.Context, at address, to raftyard.NodeID) error {
	r, err := n.servingAt(at)
	if err != nil {
		return err
	}
	until := n.world.now().Add(n.ticks(2 * n.cfg.ElectionTicks))
	for {
		if err = n.askSuccessor(ctx, r, to); err == nil {
			err = n.tryTransfer(ctx, r, to)
		} else if errors.Is(err, errNotYet) && n.isSentSnapshot(ctx, r, to) {
			err = sentSnapshot(to) // that may be why it answers late, or does not hear the leader
		}
		if !errors.Is(err, errNotYet) || n.world.now().After(until) ||
			!n.world.sleep(ctx, n.cfg.TickInterval) {
			return err
		}
	}
}

// isSentSnapshot reports whether the replica leads, and sends a snapshot to a node.
func (n *Node) isSentSnapshot(ctx context.Context, r *replica, to raftyard.NodeID) bool {
	got := make(chan bool, 1)
	if !r.worker.box.control(func() {
		sent := false
		r.worker.guard(r, "transfer leadership", func() {
			m, _ := r.meta.State.Descriptor.MemberOn(to)
			sent = r.raft.Status().Progress[m.ID].PendingSnapshot != 0
		})
		got <- sent
	}) {
		return false
	}
	sent, _ := await(n.world, got, r.gone, ctx.Done())
	return sent
}

func sentSnapshot(to raftyard.NodeID) error {
	return fmt.Errorf("%w: node %d is being sent a snapshot%w", ErrTransfer, to, errNotYet)
}

// askSuccessor asks a node that is to take over whether its replica can: what the leader
// knows of it is from a moment ago, and does not tell what its state machine does. Nothing
// has stopped yet, so a refusal costs nobody anything.
func (n *Node) askSuccessor(ctx context.Context, r *replica, to raftyard.NodeID) error {
	v := r.view.Load()
	m, ok := v.State.Descriptor.MemberOn(to)
	if !ok || m.ID == r.id || v.Leader != r.id {
		return nil // the worker knows what is wrong with that
	}
	short, cancel := n.world.withTimeout(ctx, n.ticks(n.cfg.ElectionTicks))
	defer cancel()
	st, err := n.askReplica(short, to, r.group)
	switch {
	case err != nil:
		return fmt.Errorf("%w: node %d cannot be asked: %s%w",
			ErrTransfer, to, err.Error(), errNotYet)
	case st.Group.Incarnation != r.incarnation.String() || st.Replica != m.ID:
		return fmt.Errorf("%w: node %d does not have replica %d yet%w",
			ErrTransfer, to, m.ID, errNotYet)
	case st.Fault != "":
		return fmt.Errorf("%w: the replica on node %d is stopped: %s", ErrTransfer, to, st.Fault)
	case st.LogOnly && !r.machine.logOnly.Load():
		return fmt.Errorf("%w: node %d keeps the log of the group only", ErrTransfer, to)
	case st.Installing:
		return fmt.Errorf("%w: node %d is being brought up by a snapshot%w",
			ErrTransfer, to, errNotYet)
	case st.Leader != r.id:
		return fmt.Errorf("%w: node %d does not hear this leader%w", ErrTransfer, to, errNotYet)
	case st.Applied+maxTransferLag < st.Commit:
		return fmt.Errorf("%w: the state machine on node %d is %d entries behind%w",
			ErrTransfer, to, st.Commit-st.Applied, errNotYet)
	}
	return nil
}

func (n *Node) tryTransfer(ctx context.Context, r *replica, to raftyard.NodeID) error {
	done, err := n.transferHere(r, to)
	if err != nil {
		return err
	}
	err, from := await(n.world, done, r.gone, ctx.Done())
	switch from {
	case fromFirst:
		err = fmt.Errorf("%w: %w", ErrTransfer, r.goneReason())
	case fromSecond:
		err = fmt.Errorf("%w: not done within the deadline: %w", ErrUnknownOutcome, ctx.Err())
	case fromValues:
	}
	return err
}

// transfer is a handover of leadership that somebody waits for.
type transfer struct {
	to    raftyard.ReplicaID
	done  chan error // holds one
	ticks int
	tries int
}

// beginTransfer hands the leadership to a member, after checking that it can
// take it. The answer comes when it has happened, or when it has not.
func (w *worker) beginTransfer(r *replica, to raftyard.NodeID, done chan error) {
	err := w.checkTransfer(r, to)
	m, _ := r.meta.State.Descriptor.MemberOn(to)
	if err == nil && m.ID == r.id {
		done <- nil
		return
	}
	if err == nil {
		if err = r.raft.TransferLeader(m.ID); err != nil {
			err = fmt.Errorf("%w: %w", ErrTransfer, err)
		}
	}
	if err != nil {
		done <- err
		return
	}
	r.steering.transfer = &transfer{to: m.ID, done: done}
	w.touch(r)
}

// checkTransfer returns why the node cannot be given the leadership. That raft has not heard
// of it comes last: once in an election timeout that is so for a moment of every member.
func (w *worker) checkTransfer(r *replica, to raftyard.NodeID) error {
	m, ok := r.meta.State.Descriptor.MemberOn(to)
	st := r.raft.Status()
	p := st.Progress[m.ID]
	switch {
	case st.Role != group.Leader:
		return &NotLeaderError{Group: r.group, Leader: r.nodeOf(st.Leader)}
	case !ok:
		return fmt.Errorf("%w: node %d is not a member of group %d", ErrTransfer, to, r.group)
	case m.ID == r.id:
		return nil
	case w.node.isDrained(to):
		return fmt.Errorf("%w: node %d is drained", ErrTransfer, to)
	case w.node.conditionOf(to).Level >= DiskHard:
		return fmt.Errorf("%w: node %d has too little disk space", ErrTransfer, to)
	case w.node.conditionOf(to).Stuck:
		return fmt.Errorf("%w: the disk of node %d does not answer", ErrTransfer, to)
	case m.Role != group.Voter && m.Role != group.Incoming:
		return fmt.Errorf("%w: node %d is a %v", ErrTransfer, to, m.Role)
	case r.steering.transfer != nil || st.Transferee != 0:
		return fmt.Errorf("%w: another transfer is under way", ErrTransfer)
	case p.PendingSnapshot != 0:
		return sentSnapshot(to)
	case p.Match+maxTransferLag < st.Last:
		return fmt.Errorf("%w: node %d is %d entries behind%w",
			ErrTransfer, to, st.Last-p.Match, errNotYet)
	case !p.RecentActive:
		return fmt.Errorf("%w: node %d does not answer%w", ErrTransfer, to, errNotYet)
	}
	return nil
}

// errNotYet marks a reason that may be gone in a moment: raft forgets who was
// active at every election timeout, and a new member catches up. It has no text.
var errNotYet = errors.New("")

// maxTransferTries is how often a transfer is begun again that raft gave up.
const maxTransferTries = 3

// maxTransferLag is how far behind a member may be that is to take over.
const maxTransferLag = 1000

// tickTransfer ends a transfer that has happened, or has failed.
func (w *worker) tickTransfer(r *replica) {
	t := r.steering.transfer
	if t == nil {
		return
	}
	t.ticks++
	st := r.raft.Status()
	if r.endTransfer(st.Leader, st.Role) {
		return
	}
	switch {
	case t.ticks > (maxTransferTries+1)*w.node.cfg.ElectionTicks:
		t.end(r, fmt.Errorf("%w: replica %d has not taken over in time", ErrTransfer, t.to))
	case st.Role == group.Leader && st.Transferee == 0:
		// Raft gave up, as it does after an election timeout. At the same moment it forgets
		// who was active, and may refuse to begin again for a few ticks.
		if t.tries >= maxTransferTries {
			t.end(r, fmt.Errorf(
				"%w: replica %d did not take over: it did not win an election in time",
				ErrTransfer, t.to))
		} else if r.raft.TransferLeader(t.to) == nil {
			t.tries++
		}
	}
}

// endTransfer ends a transfer if another replica leads now, as soon as that is known, and
// reports whether it does.
func (r *replica) endTransfer(leader raftyard.ReplicaID, role group.RaftRole) bool {
	t := r.steering.transfer
	switch {
	case t == nil || leader == 0:
		return false
	case leader == t.to:
		t.end(r, nil)
	case role != group.Leader:
		t.end(r, fmt.Errorf("%w: replica %d leads now", ErrTransfer, leader))
	default:
		return false
	}
	return true
}

// end tells who waits for the transfer what has become of it.
func (t *transfer) end(r *replica, err error) {
	r.steering.transfer = nil
	t.done <- err
}

// transferHere has the worker hand the leadership over; the channel gets the answer.
func (n *Node) transferHere(r *replica, to raftyard.NodeID) (chan error, error) {
	done := make(chan error, 1)
	ok := r.worker.box.control(func() {
		err := errors.Join(ErrFaulty, errNotServing)
		r.worker.guard(r, "transfer leadership", func() {
			err = nil
			r.worker.beginTransfer(r, to, done)
		})
		if err != nil {
			done <- err
		}
	})
	if !ok {
		return nil, ErrClosed
	}
	return done, nil
}
