package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
)

// replicasName is where the directories of replicas are.
const replicasName = "replicas"

// systemKind names the state machine of the system group.
const systemKind = "system"

// foundSystemGroup makes this node's replica of the system group at the node's
// very first start, if it is one of the founding nodes. Its members come from the
// configuration, the same on every node: it is the only group that is not grown from
// one seed.
func (n *Node) foundSystemGroup() error {
	if st, ok := n.store.Replica(raftyard.SystemGroup); ok {
		unknown := st.Damage != nil && st.Incarnation.IsZero()
		if want := n.systemIncarnation(); st.Incarnation != want && !unknown {
			return fmt.Errorf("node: %w: %s belongs to a cluster that was founded with another "+
				"list of nodes than %d; give the node the original list, and join further nodes "+
				"through the API", ErrInvalid, n.cfg.Dir, n.foundingIDs())
		}
		return nil
	}
	if boot := n.store.Identity().Boot; boot > 1 && len(n.store.Replicas()) > 0 {
		return fmt.Errorf("node: %w: %s has replicas but none of the system group; restore what "+
			"is missing as it was, or start with an empty directory: the node is taken in again "+
			"by itself", ErrFaulty, n.cfg.Dir)
	}
	d := n.systemDescriptor()
	self, ok := d.MemberOn(n.cfg.ID)
	if !ok {
		return nil // it joins later, and founds nothing
	}
	c := creation{
		group: raftyard.SystemGroup, incarnation: d.Incarnation, id: self.ID, genesis: &d,
	}
	if err := n.committer.wait([]write{n.lifecycle.createWrite(c)})[0]; err != nil {
		return fmt.Errorf("node: found the system group: %w", err)
	}
	return nil
}

// foundingIDs are the ids of the configured nodes, in order.
func (n *Node) foundingIDs() []raftyard.NodeID {
	ids := make([]raftyard.NodeID, 0, len(n.cfg.Peers))
	for _, p := range n.cfg.Peers {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids
}

// systemIncarnation is the same on every node of a cluster that is configured
// with the same nodes, and on no other.
func (n *Node) systemIncarnation() raftyard.Incarnation {
	b := []byte(systemKind)
	for _, id := range n.foundingIDs() {
		b = binary.BigEndian.AppendUint64(b, uint64(id))
	}
	return raftyard.Incarnation(uuid.NewSHA1(n.cluster, b))
}

func (n *Node) systemDescriptor() group.Descriptor {
	ids := n.foundingIDs()
	d := group.Descriptor{
		Group: raftyard.SystemGroup, Incarnation: n.systemIncarnation(), Kind: systemKind,
		Epoch: 1, NextReplica: raftyard.ReplicaID(len(ids) + 1),
		SnapshotEntries: defaultSnapshots, TrailingEntries: defaultSnapshots / 2,
	}
	for i, id := range ids {
		role := group.Voter
		if i >= systemVoters(len(ids)) {
			role = group.Learner
		}
		d.Members = append(d.Members, group.Member{
			ID: raftyard.ReplicaID(i + 1), Node: id, Role: role,
		})
	}
	return d
}

// openReplicas brings back what is on the disk. A replica that cannot be opened
// is shown as stopped; it does not keep the others from working.
func (n *Node) openReplicas(ctx context.Context) error {
	for _, st := range n.store.Replicas() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("node: open: %w", err)
		}
		if st.Tombstone != nil {
			continue
		}
		if err := n.openReplica(st.Group); err != nil {
			n.logger.Error("replica not started; the rest of the node goes on",
				groupAttr(st.Group), errAttr(err))
		}
	}
	n.resumePurges()
	// Without a replica of the system group the node waits to be given one, or has been
	// taken out of the cluster. One that is damaged the others replace, if there are any.
	r := n.replica(raftyard.SystemGroup)
	if r != nil && r.fault() != nil && (!n.isDamaged(r) || n.isOnlyMember(r)) {
		return fmt.Errorf("node: the replica of the system group cannot be opened: %w", r.fault())
	}
	return nil
}

// openReplica starts a replica that is in the log store. One that cannot be
// started is kept as stopped, with the error as its reason.
func (n *Node) openReplica(g raftyard.GroupID) error {
	st, ok := n.store.Replica(g)
	if !ok || st.Tombstone != nil {
		return fmt.Errorf("group %d: %w", g, ErrNoReplica)
	}
	return n.bringUp(n.newReplica(st), st, known{})
}

// bringUp is openReplica for one that is known already. It starts from what is durable, with
// what is known beside that.
func (n *Node) bringUp(r *replica, st storage.Replica, before known) error {
	if st.Group == raftyard.SystemGroup {
		n.systemReplica.Store(uint64(st.ID))
	}
	err := n.load(r, st, before)
	switch {
	case err == nil:
		r.publish()
	case errors.Is(err, group.ErrRemoved): // nothing is wrong with it
		r.view.Store(&view{Role: "none", State: r.meta.State})
		r.stopServing(fmt.Errorf("%w: %w", ErrNoReplica, err))
	default:
		r.view.Store(&view{Role: "none", State: r.meta.State})
		err = loadFault(err)
		r.events.fault(n.world.now(), err)
		r.stopServing(err)
	}
	n.mu.Lock()
	n.replicas[r.group] = r
	n.mu.Unlock()
	if errors.Is(err, group.ErrRemoved) {
		// It applied its own removal, and crashed before its tombstone.
		n.lifecycle.removed(r)
		return nil
	}
	if err != nil {
		return err
	}
	if !r.worker.box.control(func() {
		r.worker.guard(r, "start", func() { r.worker.begin(r) })
	}) {
		r.stopServing(ErrClosed)
	}
	return nil
}

func (n *Node) newReplica(st storage.Replica) *replica {
	return &replica{
		group: st.Group, incarnation: st.Incarnation, id: st.ID, node: n.cfg.ID,
		worker: n.workerOf(st.Group),
		gone:   make(chan struct{}),
		events: new(events),
		machine: &machine{
			world:   n.world,
			env:     n.env(st),
			factory: n.factory,
		},
	}
}

// env is what a replica's state machine is told.
func (n *Node) env(st storage.Replica) group.Env {
	return group.Env{
		Group: st.Group, Incarnation: st.Incarnation, Replica: st.ID, Node: n.cfg.ID,
		Dir: filepath.Join(n.cfg.Dir, replicasName,
			ReplicaDir(st.Group, st.Incarnation, st.ID)),
		Logger: slog.New(groupHandler{next: n.logger.Handler(), group: st.Group}),
	}
}

// hasKind reports whether the node has state machines of a kind.
func (n *Node) hasKind(kind string) bool { return kind == systemKind || n.cfg.Kinds[kind] != nil }

// factory finds the factory of a kind; nil if it is not one of the node's.
func (n *Node) factory(kind string) group.Factory {
	if kind == systemKind {
		return n.newSystemMachine
	}
	f := n.cfg.Kinds[kind]
	if f == nil {
		n.missing.note(n.logger, kind)
	}
	return f
}

// newSystemMachine makes the state machine of a replica of the system group. The node
// reads the registry of the latest one; an earlier one may still be busy with its end.
func (n *Node) newSystemMachine(env group.Env) (group.StateMachine, error) {
	var own *registry.Registry
	own = registry.New(n.genesisNodes(), func() {
		if n.systemReplica.Load() == uint64(env.Replica) {
			n.registry.Show(own)
			n.registryChanged()
		}
	})
	return own, nil
}

// load makes a replica ready to run: its record, its state machine at the right
// index, and raft on top.
func (n *Node) load(r *replica, st storage.Replica, before known) error {
	m, err := decodeMeta(st.Meta)
	if err == nil {
		r.meta = m // of a damaged replica it may be an older one
	}
	if st.Damage != nil {
		err = st.Damage
	}
	if r.group == raftyard.SystemGroup {
		n.noted.set(r.meta.notes())
	}
	if err != nil {
		return faulty(DamagedLog, err)
	}
	if r.log = n.store.Log(r.group); r.log == nil {
		return fmt.Errorf("group %d: %w: no log", r.group, ErrFaulty)
	}
	if r.group == raftyard.SystemGroup {
		n.beginFounding(r)
	}
	if err = n.finishInstall(r); err != nil {
		return err
	}
	n.sweepFiles(r.machine.env.Dir, r.meta)
	if err = n.loadMachine(r); err != nil {
		if err = n.loadBroken(r, err); err != nil {
			return err
		}
	}
	if err = n.noteDecided(r, before.skip); err != nil {
		return err
	}
	r.raft, err = group.New(group.Config{
		Group: r.group, Node: n.cfg.ID, Replica: r.id, Incarnation: r.incarnation,
		Store:   n.replicaStore(),
		Storage: r.log, State: r.meta.State, Applied: r.machine.position.applied,
		Commit: before.commit, SkipAt: r.meta.SkipAt, Skips: r.meta.Skips,
		ElectionTicks: n.cfg.ElectionTicks, HeartbeatTicks: n.cfg.HeartbeatTicks,
		Limits: n.cfg.Limits, Boot: n.store.Identity().Boot, Logger: n.logger,
	})
	if err != nil {
		return err
	}
	r.applied.Store(r.machine.position.applied)
	r.machine.skips = slices.Clone(r.meta.Skips)
	if snap, err := r.log.Snapshot(); err == nil {
		r.snap.index = snap.GetMetadata().GetIndex()
		r.noteSize(snap)
	}
	r.snap.passed = r.log.BytesAfter(r.snap.index)
	if len(r.meta.State.Descriptor.Members) > 0 {
		r.schedule(true)
	}
	return nil
}

// loadMachine opens the state machine and finds out where it stands.
func (n *Node) loadMachine(r *replica) error {
	m, d := r.machine, r.meta.State.Descriptor
	if len(d.Members) == 0 {
		return nil // no state yet; it comes with a snapshot
	}
	if err := n.openMachine(r, d.Kind); err != nil {
		return err
	}
	index, durable, err := m.machineApplied()
	if err == nil && durable && r.meta.Floor.File != "" {
		index, err = n.leaveLogOnly(r, index)
	}
	at := r.meta.Floor
	if at.File == "" {
		r.meta.Rebuild = false // nothing is needed from elsewhere
	}
	switch {
	case err != nil:
		return err
	case m.logOnly.Load():
	case durable && index < at.Machine:
		return faulty(DamagedState, fmt.Errorf(
			"the state machine is at index %d, but had reached %d: it has lost state",
			index, at.Machine))
	case durable && index > at.Index && !mutant.On(mutant.ApplyTwice):
		m.lastCommand = index
		at.Index = index
		if at.Term, err = r.log.Term(index); err != nil {
			return faulty(DamagedLog, fmt.Errorf(
				"the state machine is at index %d, which the log does not reach: %w", index, err))
		}
	case durable:
		m.lastCommand = index
	case !at.ownsState():
		return faulty(DamagedState, fmt.Errorf("the state at index %d was kept by the state "+
			"machine itself, and this one keeps nothing", at.Index))
	case at.File != "":
		if err = m.restore(at.File, at.Check); err != nil {
			return err
		}
		r.meta.Rebuild = false
	}
	if mutant.On(mutant.SkipApplied) {
		at.Index = max(at.Index, r.log.HardState().GetCommit())
	}
	m.position = position{applied: at.Index, term: at.Term, state: r.meta.State}
	return nil
}

// finishInstall completes the installation of a snapshot that a crash has
// interrupted: the state machine is restored (again), then the log is reset.
func (n *Node) finishInstall(r *replica) error {
	in := r.meta.Install
	if in == nil {
		return nil
	}
	manifest, err := group.DecodeManifest(in.Manifest)
	if err != nil {
		return fmt.Errorf("interrupted installation of a snapshot: %w", err)
	}
	kind := manifest.State.Descriptor.Kind
	if err = n.noteMachine(r, kind); err != nil {
		return fmt.Errorf("interrupted installation of a snapshot: %w", err)
	}
	fl, err := n.take(r, manifest.State, in)
	if err != nil {
		return fmt.Errorf("interrupted installation of a snapshot at index %d: %w", in.Index, err)
	}
	save, err := group.FinishInstall(r.log.HardState(),
		group.NewSnapshot(in.Index, in.Term, manifest))
	if err != nil {
		return fmt.Errorf("interrupted installation of a snapshot: %w", err)
	}
	r.meta.Install, r.meta.Floor, r.meta.State = nil, fl, manifest.State
	r.meta.Skips = nil
	return n.committer.wait([]write{{
		group: r.group,
		update: storage.Update{
			HardState: save.HardState, Reset: true, Snapshot: save.Snapshot, Meta: r.meta.encode(),
		},
	}})[0]
}

// begin is a replica's first moment in its worker.
func (w *worker) begin(r *replica) {
	w.add(r)
	w.node.lifecycle.attend(r)
	if len(r.meta.State.Descriptor.Members) == 0 {
		return
	}
	voters := r.meta.State.Descriptor.Voters()
	if len(voters) == 1 && voters[0].ID == r.id && !w.node.waitsToFound(r) {
		// Nobody else could lead; there is nothing to wait for. What is committed
		// is handed out first: raft does not campaign over a change in it.
		w.drain(r)
		if err := r.raft.Campaign(); err != nil {
			r.logger().Warn("campaign", errAttr(err))
		}
	}
	w.maybeSnapshot(r)
}
