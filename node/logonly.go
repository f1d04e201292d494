package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// A replica on a node that does not know its kind is log-only: it keeps the log, votes,
// applies membership changes, leads if it has to, and has no state. It never cuts its
// log beyond a state that it owns: a snapshot that it was given by a replica with a state
// machine, kept in a file.
//
//	log grows ──▶ asks a member with state ──▶ stream, file, synced ──▶ is it what was
//	committed at its index? ──▶ file named in the record, log cut: one synced write
//
// With the file and the log after it anybody who knows the kind can have the state again,
// if only log-only replicas are left.

// errLogOnly: the node has the log of the group, and no state machine for it.
var errLogOnly = errors.New("this node keeps the log only: it has no state machine of the kind")

// noState is the error of a request for the state of a group that has none here.
func (r *replica) noState() error {
	if fault := r.machine.fault(); fault != nil {
		// That is no reason not to ask others: it must not look like the fault itself.
		return fmt.Errorf("group %d: %w: node %d: %s", r.group, ErrNoState, r.node, fault.Error())
	}
	return fmt.Errorf("group %d: %w: %w", r.group, ErrNoState, errLogOnly)
}

// missingKinds are the kinds that this node was asked for and does not know. The zero
// value is ready.
type missingKinds struct {
	mu   sync.Mutex
	told map[string]bool
}

// note says once that a kind is missing.
func (k *missingKinds) note(logger *slog.Logger, kind string) {
	k.mu.Lock()
	told := k.told[kind]
	if k.told == nil {
		k.told = make(map[string]bool)
	}
	k.told[kind] = true
	k.mu.Unlock()
	if !told {
		logger.Warn("this node has no state machine of a kind: its replicas of that kind "+
			"keep the log only", slog.String("kind", kind))
	}
}

// any reports whether a kind is missing that a replica here has.
func (k *missingKinds) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.told) > 0
}

// keepsLogOnly returns an error if this node's replica of a group has no state machine
// that works.
func (n *Node) keepsLogOnly(g raftyard.GroupID) error {
	if r := n.replica(g); r != nil && r.machine.logOnly.Load() {
		return r.noState()
	}
	return nil
}

// isLogOnly reports whether the node does not know the replica's kind.
func (m *machine) isLogOnly() bool { return m.logOnly.Load() && m.fault() == nil }

// kindMissing reports whether a replica that is to be made will have no state machine.
func (n *Node) kindMissing(c creation) bool {
	var kind string
	if c.genesis != nil {
		kind = c.genesis.Kind
	} else {
		kind, _ = n.Kind(c.group)
	}
	return kind != "" && !n.hasKind(kind)
}

// openMachine opens a replica's state machine at the start. Before the first one of a
// replica it is noted that there is something to delete when the replica goes.
func (n *Node) openMachine(r *replica, kind string) error {
	if err := n.noteMachine(r, kind); err != nil {
		return err
	}
	return r.machine.open(kind)
}

func (n *Node) noteMachine(r *replica, kind string) error {
	if !r.meta.NoMachine || !n.hasKind(kind) {
		return nil
	}
	r.meta.NoMachine = false
	return n.writeMeta(r)
}

// writeMeta makes a replica's record durable, before its worker has it.
func (n *Node) writeMeta(r *replica) error {
	return n.committer.wait([]write{{
		group: r.group, update: r.metaUpdate(),
	}})[0]
}

// metaUpdate is the update that makes the record durable.
func (r *replica) metaUpdate() storage.Update { return storage.Update{Meta: r.meta.encode()} }

// leaveLogOnly is the first start with a durable state machine after a time without. The
// state machine may have slept since before the log was cut: then it takes over the state
// in the file. It returns how far the state machine is.
func (n *Node) leaveLogOnly(r *replica, index uint64) (uint64, error) {
	m, fl := r.machine, r.meta.Floor
	if index < fl.Index || r.meta.Rebuild {
		err := m.restore(fl.File, fl.Check)
		if err == nil {
			index, _, err = m.machineApplied()
		}
		if err != nil {
			return 0, fmt.Errorf("take over the state at index %d: %w", fl.Index, err)
		}
	}
	// From here on the floor is as if the state machine had always been there.
	r.meta.Floor.Machine = min(index, fl.Index)
	r.meta.Floor.File, r.meta.Floor.Check = "", fileCheck{}
	r.meta.Rebuild = false
	if err := n.writeMeta(r); err != nil {
		return 0, err
	}
	n.removeFile(filepath.Join(m.env.Dir, fl.File))
	return index, nil
}

// ownsState reports whether the state at the floor can be had without a state machine: it
// is in a file, or there is none.
func (f *floor) ownsState() bool { return f.File != "" || f.Machine == 0 }

// owning is how a log-only replica comes by a state of its own.
type owning struct {
	asking bool // it waits to ask, or for what it has asked for
	pause  int  // ticks until it asks again
	wait   int  // ticks of the next pause
	rotten bool // the file is damaged
	// wanted: the state is to take the place of what the state machine has, from index
	// from on.
	wanted bool
	from   uint64
}

// A stateWish is a log-only replica that wants a state.
type stateWish struct {
	r     *replica
	least uint64 // the index at which it must be, or later
}

// maxWishes bounds the replicas of a node that wait to ask. More ask at a later tick.
const maxWishes = 1024

// leastOwn returns the least index at which a state would be of use.
func (r *replica) leastOwn() uint64 {
	least := r.snap.index
	if r.meta.Floor.ownsState() && !r.own.rotten {
		least++
	}
	return max(least, r.own.from)
}

// wantsState reports whether a log-only replica should ask for a state.
func (r *replica) wantsState() bool {
	applied := r.applied.Load()
	switch {
	case len(r.meta.State.Descriptor.Members) == 0 || applied < r.leastOwn():
		return false
	case r.own.rotten || r.own.wanted || len(r.snap.waiters) > 0:
		return true
	case !r.meta.Floor.ownsState() && r.machine.isLogOnly():
		return true // one that has failed has its state, and may go on from there
	default:
		return r.snapshotDue()
	}
}

// hurryOwn has a log-only replica ask for a newer state for those who wait for one.
func (w *worker) hurryOwn(r *replica) {
	r.own.pause = 0
	if r.applied.Load() < r.leastOwn() && !r.snap.running { // there is none
		fl := &r.meta.Floor
		r.tellSnapshot(snapshotResult{
			at: position{applied: fl.Index, term: fl.Term}, bytes: int64(fl.Check.Size),
		})
		w.rebuild(r)
	}
}

// tickOwn has a log-only replica ask for a state when it needs one.
func (w *worker) tickOwn(r *replica) {
	o := &r.own
	if !r.machine.logOnly.Load() || o.asking {
		return
	}
	if o.pause > 0 {
		o.pause--
		return
	}
	if !r.wantsState() {
		return
	}
	select {
	case w.node.wishes <- stateWish{r: r, least: r.leastOwn()}:
		o.asking = true
	default: // many others wait
	}
}

// asked hears how asking for a state has ended. Whether something has come of it is known
// already.
func (w *worker) asked(r *replica, err error) {
	o := &r.own
	o.asking = false
	if err == nil {
		o.wait = 0
		return
	}
	if !r.snap.running { // those who wait need not wait for the next attempt
		r.tellSnapshot(snapshotResult{err: err})
	}
	limit := maxOwnPause * w.node.cfg.ElectionTicks
	o.wait = min(max(2*o.wait, w.node.cfg.ElectionTicks/2), limit)
	o.pause = o.wait/2 + int(w.node.world.roll(int64(o.wait/2+1)))
}

// maxOwnPause is how long a log-only replica waits at the most before it asks again, in
// election timeouts.
const maxOwnPause = 10

// keepOwn takes over a state that has come, if it is what was committed at its index.
// Whoever waits for it is told when it is durable, or why it is not kept; then the file goes.
func (w *worker) keepOwn(r *replica, res snapshotResult, told chan snapshotResult) {
	at := &res.at
	term, err := r.log.Term(at.applied)
	switch {
	case at.applied < r.leastOwn():
		err = fmt.Errorf("the state is at index %d, one from %d on is wanted",
			at.applied, r.leastOwn())
	case at.applied > r.applied.Load():
		err = fmt.Errorf("the state is at index %d, only %d is applied",
			at.applied, r.applied.Load())
	case r.out.Install != nil || r.snap.running:
		err = errSnapshotBusy
	case err == nil && term != at.term:
		err = fmt.Errorf("the state is that of index %d in term %d, which was committed in term %d",
			at.applied, at.term, term)
	}
	if err != nil {
		path := filepath.Join(r.machine.env.Dir, res.floor.File)
		w.node.files.start(func() { w.node.removeFile(path) })
		told <- snapshotResult{err: err}
		return
	}
	r.snap.begin()
	r.snap.waiters = append(r.snap.waiters, told)
	w.keepSnapshot(r, res)
}

// ownRotten hears that a file is damaged which held the state.
func (w *worker) ownRotten(r *replica, name string) {
	if r.meta.Floor.File == name {
		r.own.rotten, r.own.pause = true, 0
	}
}

// offerOwn prepares to send a follower the state that a log-only leader owns. It returns
// false if there is nothing to be streamed.
func (w *worker) offerOwn(r *replica, j *sendJob) bool {
	fl, snap := &r.meta.Floor, j.env.Message.GetSnapshot()
	to := j.env.To.Replica
	manifest, err := group.DecodeManifest(snap.GetData())
	if err != nil || !fl.ownsState() || r.own.rotten || fl.Index != snap.GetMetadata().GetIndex() {
		r.own.pause = 0
		r.raft.ReportSnapshot(to, false) // it is asked again
		return false
	}
	if fl.File != "" {
		j.file, j.check = fl.File, fl.Check
		return true
	}
	manifest.Empty = true
	env := j.env
	env.Message = &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), To: env.Message.To, From: env.Message.From,
		Term:     env.Message.Term,
		Snapshot: group.NewSnapshot(fl.Index, fl.Term, manifest),
	}
	w.outgoing.add(env)
	r.raft.ReportSnapshot(to, true)
	return false
}

// openOwn opens the file that a log-only replica sends.
func (n *Node) openOwn(j *sendJob) (*snapshotFile, error) {
	return openSnapshotFile(n.world.files, filepath.Join(j.r.machine.env.Dir, j.file), j.check)
}

// askForStates asks for the states that log-only replicas want, one at a time.
func (n *Node) askForStates() {
	for {
		wish, from := await(n.world, n.wishes, n.running.Done(), nil)
		if from != fromValues {
			return
		}
		r := wish.r
		err := n.askForState(n.running, wish)
		if err != nil && !errors.Is(err, context.Canceled) && n.unownedLog.due(n.world.now()) {
			n.logger.Warn("a replica without a state machine got no state and cannot cut its "+
				"log; it asks again", groupAttr(r.group), errAttr(err))
		}
		r.worker.box.control(func() {
			r.worker.guard(r, "hear of a state", func() { r.worker.asked(r, err) })
		})
	}
}
