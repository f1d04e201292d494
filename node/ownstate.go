package node

import (
	"context"
	"fmt"
	"io"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/transport"
)

// A state for a log-only replica travels as a stream like any snapshot, but it is none of
// raft's: its message has a context, which raft's own never have, and is shown to no raft.

// ownContext marks the message of such a stream.
const ownContext = "own state"

// isOwnState reports whether a stream is a state that was asked for.
func isOwnState(m *raftpb.Message) bool { return string(m.GetContext()) == ownContext }

// maxStateAsks is how many members are asked in one attempt.
const maxStateAsks = 3

// askForState asks members that ought to have the state to send it. It returns when one
// has, and the state is kept.
func (n *Node) askForState(ctx context.Context, wish stateWish) error {
	r := wish.r
	v := r.view.Load()
	asks := n.stateHolders(v.State.Descriptor, v.LeaderNode)
	err := fmt.Errorf("group %d: %w: no member has a state machine", r.group, ErrNoState)
	for i, id := range asks {
		if i == maxStateAsks || ctx.Err() != nil || !r.serving() {
			break
		}
		if err = n.askStateOf(ctx, id, wish); err == nil {
			return nil
		}
	}
	return err
}

func (n *Node) askStateOf(ctx context.Context, id raftyard.NodeID, wish stateWish) error {
	ctx, cancel := n.world.withTimeout(ctx, snapshotTimeout)
	defer cancel()
	body := wire.AppendUvarint(nil, uint64(wish.r.group))
	body = wire.AppendID(body, wish.r.incarnation)
	body = wire.AppendUvarint(body, uint64(wish.r.id))
	body = wire.AppendUvarint(body, wish.least)
	_, err := n.ask(ctx, id, askState, body)
	return err
}

// stateHolders are the nodes of members that have the state as far as is known, the
// leader's first, then in a random order.
func (n *Node) stateHolders(d group.Descriptor, leader raftyard.NodeID) []raftyard.NodeID {
	live := n.liveBoots()
	var ids []raftyard.NodeID
	for _, m := range d.Members {
		if m.Node != n.cfg.ID && n.kinds.has(m.Node, live[m.Node], d.Kind) {
			ids = append(ids, m.Node)
		}
	}
	for i := len(ids) - 1; i > 0; i-- {
		j := int(n.world.roll(int64(i + 1)))
		ids[i], ids[j] = ids[j], ids[i]
	}
	for i, id := range ids {
		if id == leader {
			ids[0], ids[i] = ids[i], ids[0]
		}
	}
	return ids
}

// serveState sends the state of a replica here to another one that has none, and returns
// when it is there.
func (n *Node) serveState(ctx context.Context, b *wire.Reader) ([]byte, error) {
	g, incarnation := raftyard.GroupID(b.Uvarint()), raftyard.Incarnation(b.ID())
	to, least := raftyard.ReplicaID(b.Uvarint()), b.Uvarint()
	if err := b.Close(); err != nil {
		return nil, err
	}
	r, err := n.serving(g)
	if err != nil {
		return nil, err
	}
	v := r.view.Load()
	m, member := v.State.Descriptor.Member(to)
	switch {
	case r.incarnation != incarnation:
		return nil, fmt.Errorf("group %d: %w: it is another incarnation", g, ErrNoReplica)
	case r.machine.logOnly.Load():
		return nil, r.noState()
	case !member:
		return nil, fmt.Errorf("group %d: %w: replica %d is no member", g, ErrInvalid, to)
	case r.applied.Load() < least:
		return nil, fmt.Errorf("group %d: %w: index %d is not applied yet", g, ErrNotReady, least)
	}
	j := &sendJob{
		r: r, least: least, told: make(chan error, 1),
		env: transport.Envelope{
			Group: g, Incarnation: incarnation, Epoch: v.State.Descriptor.Epoch,
			From: r.endpoint(), To: transport.Endpoint{Node: m.Node, Replica: to},
			Message: &raftpb.Message{
				Type: raftpb.MsgSnap.Enum(), To: new(uint64(to)), From: new(uint64(r.id)),
				Context: []byte(ownContext),
			},
		},
	}
	select {
	case n.sender.queue <- j:
	default:
		n.metrics.refuse(snapshotSendLimit)
		return nil, fmt.Errorf("group %d: %w: many snapshots wait to be sent", g, ErrOverloaded)
	}
	err, from := await(n.world, j.told, r.gone, ctx.Done())
	switch from {
	case fromFirst:
		err = r.goneReason()
	case fromSecond:
		err = ctx.Err()
	case fromValues:
	}
	return nil, err
}

// fits reports whether a state is of use to who has asked for it.
func (j *sendJob) fits(at position) error {
	switch {
	case at.applied < j.least:
		return fmt.Errorf("%w: index %d is not applied yet", ErrNotReady, j.least)
	case at.state.Index > at.applied:
		// After a restart the members are known before the log is applied again.
		return fmt.Errorf("%w: index %d is not applied again yet", ErrNotReady, at.state.Index)
	default:
		return nil
	}
}

// receiveOwn receives a state for a replica here that has none, and returns when it is
// kept.
func (n *Node) receiveOwn(ctx context.Context, env transport.Envelope, body io.Reader) error {
	r := n.replica(env.Group)
	if r == nil || !n.addressed(r, &env) {
		return fmt.Errorf("group %d replica %d: %w", env.Group, env.To.Replica, ErrNoReplica)
	}
	res, err := r.checkOwn(env.Message.GetSnapshot())
	if err != nil {
		return err
	}
	if !r.receiving.CompareAndSwap(false, true) {
		return errSnapshotBusy
	}
	defer r.receiving.Store(false)
	if !r.machine.hold() {
		return errNotServing
	}
	defer r.machine.release()
	dir := r.machine.env.Dir
	name := fmt.Sprintf("%s%020d-%s", snapshotPrefix, res.at.applied, n.world.newID().String()[:8])
	check, err := writeFileSync(n.world.files, dir, name, copier{r.whileHere(body)})
	if err != nil {
		return err
	}
	n.metrics.snapshotsReceived.Add(1)
	res.floor.File, res.floor.Check, res.bytes = name, check, int64(check.Size)
	return n.handOwn(ctx, r, res)
}

// checkOwn looks whether a stream can be the state of a replica, and what it then is.
func (r *replica) checkOwn(snap *raftpb.Snapshot) (res snapshotResult, err error) {
	index, term := snap.GetMetadata().GetIndex(), snap.GetMetadata().GetTerm()
	m, err := group.DecodeManifest(snap.GetData())
	d := m.State.Descriptor
	switch {
	case err != nil:
		return res, fmt.Errorf("snapshot manifest: %w", err)
	case !r.machine.logOnly.Load():
		return res, fmt.Errorf("%w: the replica has a state machine", ErrInvalid)
	case d.Group != r.group || d.Incarnation != r.incarnation:
		return res, fmt.Errorf("%w: it is of group %d, incarnation %v",
			ErrInvalid, d.Group, d.Incarnation)
	case m.State.Index > index || m.Empty:
		return res, fmt.Errorf("%w: members of index %d in a state of index %d",
			ErrInvalid, m.State.Index, index)
	}
	res.at = position{applied: index, term: term, state: m.State}
	res.floor = floor{Index: index, Term: term}
	return res, nil
}

// handOwn gives a state that is in a file to the replica's worker, when the replica is as
// far as that, and waits until it is kept. The file is the worker's from then on; of a
// replica that has gone it goes with the directory, or is swept at the next start.
func (n *Node) handOwn(ctx context.Context, r *replica, res snapshotResult) error {
	short, cancel := n.world.withTimeout(ctx, askPatience)
	defer cancel()
	for r.applied.Load() < res.at.applied && r.serving() && n.world.sleep(short, pollEvery) {
	}
	told := make(chan snapshotResult, 1)
	posted := r.worker.box.control(func() {
		kept := errNotServing
		r.worker.guard(r, "take a state", func() {
			kept = nil
			r.worker.keepOwn(r, res, told)
		})
		if kept != nil {
			told <- snapshotResult{err: kept}
		}
	})
	if !posted {
		return ErrClosed
	}
	got, from := await(n.world, told, r.gone, ctx.Done())
	switch from {
	case fromFirst:
		return r.goneReason()
	case fromSecond:
		return ctx.Err()
	default:
		return got.err
	}
}
