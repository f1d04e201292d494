package node

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/storage"
)

// snapshotting is a replica's making of its own snapshots. For a state machine
// that is durable a snapshot is a mark in the log store: up to here the log is
// not needed. For one that is not, it is a file, which the next start reads.
type snapshotting struct {
	index   uint64 // of the newest snapshot
	next    uint64 // the applied index at which the next one is due
	passed  int64  // bytes of commands that were handed out since the newest one
	counted int64  // of them, those that the one under way has or may have
	size    int64  // bytes of the state in the newest one, as far as is known
	running bool
	waiters []chan snapshotResult
	old     []string // files to remove once what replaces them is durable
}

// begin notes that a snapshot of all that was handed out is under way.
func (s *snapshotting) begin() { s.running, s.counted = true, s.passed }

// snapshotResult is what a state machine's snapshot amounts to.
type snapshotResult struct {
	at    position
	floor floor
	bytes int64
	err   error
}

// pins are log indexes that must stay while a snapshot is on its way: its
// receiver goes on from there.
type pins struct {
	mu sync.Mutex
	at map[*sendJob]uint64
}

func (p *pins) add(j *sendJob, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = make(map[*sendJob]uint64)
	}
	p.at[j] = index
}

func (p *pins) remove(j *sendJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, j)
}

// bound returns index, or less where something is pinned below.
func (p *pins) bound(index uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.at {
		index = min(index, at)
	}
	return index
}

// snapshotEvery is after how many entries the group takes a snapshot.
func (r *replica) snapshotEvery() uint64 {
	return cmp.Or(r.meta.State.Descriptor.SnapshotEntries, defaultSnapshots)
}

// schedule sets when the next snapshot is due. The first one of a replica comes
// a little earlier, by an amount that differs from group to group, so that
// groups under equal load do not all take theirs at the same moment.
func (r *replica) schedule(first bool) {
	every := r.snapshotEvery()
	r.snap.next = r.snap.index + every
	if first {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, r.group) // a hash never fails to take bytes
		r.snap.next -= h.Sum64() % (every/8 + 1)
	}
}

// maybeSnapshot takes a snapshot when enough was applied since the last one.
func (w *worker) maybeSnapshot(r *replica) {
	if !r.snap.running && !r.machine.logOnly.Load() && r.snapshotDue() {
		w.takeSnapshot(r)
	}
}

// takeSnapshot starts a snapshot.
func (w *worker) takeSnapshot(r *replica) {
	r.snap.begin()
	report := func(res snapshotResult) {
		w.box.control(func() { w.guard(r, "keep a snapshot", func() { w.snapshotTaken(r, res) }) })
	}
	w.node.appliers.add(r, task{
		run: func(m *machine) {
			if !r.serving() {
				return
			}
			w.node.mark(m, report)
		},
		drop: func(reason error) { report(snapshotResult{err: reason}) },
	})
}

// mark finds out what the state machine has, and has what is not durable
// written to a file on another goroutine.
func (n *Node) mark(m *machine, report func(snapshotResult)) {
	res := snapshotResult{at: m.position}
	res.floor = floor{Index: res.at.applied, Term: res.at.term}
	machineIndex, durable, err := m.machineApplied()
	switch {
	case err != nil:
		res.err = err
	case res.at.state.Index > res.at.applied:
		// After a restart the members are known before the log is applied again.
		res.err = fmt.Errorf("index %d is not applied again yet", res.at.state.Index)
	case durable && mutant.On(mutant.TruncateEarly):
		res.floor.Machine = 0
	case durable && machineIndex < m.lastCommand && machineIndex < res.at.state.Index:
		res.err = fmt.Errorf("the state machine is durable up to index %d only, of %d",
			machineIndex, m.lastCommand)
	case durable && machineIndex < m.lastCommand:
		// It syncs later than it applies: mark what it has synced. The worker
		// finds the term.
		res.at.applied, res.at.term = machineIndex, 0
		res.floor = floor{Index: machineIndex, Machine: machineIndex}
		res.bytes = m.size()
	case durable:
		res.floor.Machine = machineIndex
		res.bytes = m.size()
	default:
		snap, err := m.snapshot()
		if err == nil {
			n.files.start(func() { report(n.writeSnapshotFile(m, snap, res)) })
			return
		}
		res.err = err
	}
	report(res)
}

// writeSnapshotFile writes a state machine's snapshot to a new, synced file.
func (n *Node) writeSnapshotFile(
	m *machine, s group.Snapshot, res snapshotResult,
) snapshotResult {
	if !m.hold() {
		res.err = errors.Join(errNotServing, s.Close())
		return res
	}
	defer m.release()
	name := fmt.Sprintf("%s%020d-%s", snapshotPrefix, res.at.applied, n.world.newID().String()[:8])
	check, err := writeFileSync(n.world.files, m.env.Dir, name, s)
	if cerr := s.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close snapshot: %w", cerr)
	}
	res.floor.File, res.floor.Check, res.bytes, res.err = name, check, int64(check.Size), err
	return res
}

// snapshotTaken notes the snapshot in the log store and cuts the log behind it.
func (w *worker) snapshotTaken(r *replica, res snapshotResult) {
	switch {
	case res.err != nil:
		w.snapshotFailed(r, res)
		return
	case res.at.applied <= r.snap.index || r.out.Install != nil:
		w.snapshotOvertaken(r, res)
		return
	}
	if res.at.term == 0 {
		if res.at.term, res.err = r.log.Term(res.at.applied); res.err != nil {
			w.snapshotFailed(r, res)
			return
		}
		res.floor.Term = res.at.term
	}
	if mutant.On(mutant.SnapshotTerm) {
		res.at.term = r.raft.Position().Term
		res.floor.Term = res.at.term
	}
	w.keepSnapshot(r, res)
}

// keepSnapshot makes a snapshot durable, and cuts the log behind it.
func (w *worker) keepSnapshot(r *replica, res snapshotResult) {
	r.obsolete(r.meta.Floor.File)
	r.meta.Floor = res.floor
	r.snap.size = res.bytes
	r.dropSkips()
	u := storage.Update{
		Snapshot:  w.node.newSnapshot(res.at, res.bytes),
		CompactTo: r.compactTo(res.at.applied),
		Meta:      r.meta.encode(),
	}
	w.writes = append(w.writes, write{group: r.group, update: u, done: func(err error) {
		if err == nil { // or else the replica, or the node, is stopped
			w.box.control(func() { w.guard(r, "end a snapshot", func() { w.endSnapshot(r, res) }) })
		}
	}})
}

// snapshotOvertaken drops a snapshot that is not newer than the one there is, or
// that comes while one from the leader is being installed.
func (w *worker) snapshotOvertaken(r *replica, res snapshotResult) {
	if name := res.floor.File; name != "" {
		path := filepath.Join(r.machine.env.Dir, name)
		w.node.files.start(func() { w.node.removeFile(path) })
	}
	r.schedule(false)
	r.tellSnapshot(snapshotResult{
		at:    position{applied: r.meta.Floor.Index, term: r.meta.Floor.Term},
		bytes: res.bytes,
	})
}

// snapshotFailed has another attempt be made later.
func (w *worker) snapshotFailed(r *replica, res snapshotResult) {
	w.node.metrics.snapshotsPostponed.Add(1)
	w.node.logger.Warn("snapshot postponed", groupAttr(r.group), errAttr(res.err))
	r.note("snapshot postponed: %v", res.err)
	r.postpone()
	r.tellSnapshot(res)
}

// endSnapshot notes a snapshot that is durable.
func (w *worker) endSnapshot(r *replica, res snapshotResult) {
	r.snap.index = max(r.snap.index, res.at.applied)
	r.snap.passed -= r.snap.counted
	r.snap.counted = 0
	r.own.rotten = false
	first, _ := r.log.Bounds()
	r.raft.Compacted(first - 1)
	w.node.metrics.snapshotsTaken.Add(1)
	r.note("snapshot of index %d, the log begins at %d", res.at.applied, first)
	w.removeObsolete(r)
	r.schedule(false)
	r.tellSnapshot(res)
	w.rebuild(r)
	w.maybeSnapshot(r) // of what came meanwhile: nothing may follow for long
}

// tellSnapshot tells those who asked for the snapshot how it went.
func (r *replica) tellSnapshot(res snapshotResult) {
	r.snap.running = false
	for _, c := range r.snap.waiters {
		c <- res // holds one
	}
	r.snap.waiters = nil
}

// newSnapshot is the snapshot that raft knows of: where it is, and a manifest
// that says what is in it. The content is the state machine's.
func (n *Node) newSnapshot(at position, size int64) *raftpb.Snapshot {
	return group.NewSnapshot(at.applied, at.term, group.Manifest{
		State: at.state, ID: n.newMessageID(), Size: size,
	})
}
