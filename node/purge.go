package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
)

// What a destroyed replica stored outside of the log store is purged after its tombstone
// is durable: its state machine's state, and its directory; for that see removal.go. Its
// life:
//
//	tombstone ──▶ purging ──▶ purged, noted in the tombstone
//	                │  ▲
//	         failed ▼  │ again, after a pause
//	               waiting ──▶ set aside: a note in a file takes the tombstone's place,
//	                           so that a new replica can have it; purged from there
//
// The rounds of the lifecycle begin and end everything; only the work itself is done
// elsewhere.

const (
	// minPurgePause and maxPurgePause bound the pause after a purge that failed, in
	// ticks. It doubles from one to the next.
	minPurgePause = 10
	maxPurgePause = 600
	// patientPurges is how many fail before a new replica need not wait any more.
	patientPurges = 3
)

// A leftover is what a destroyed replica has stored.
type leftover struct {
	group       raftyard.GroupID
	incarnation raftyard.Incarnation
	id          raftyard.ReplicaID
	kind        string // of its state machine, empty: not known
	noMachine   bool   // it never had one
}

func leftoverOf(st storage.Replica, last remains) leftover {
	return leftover{
		group: st.Group, incarnation: st.Incarnation, id: st.ID,
		kind: last.Kind, noMachine: last.NoMachine,
	}
}

// replica is as much of it as the log store tells.
func (lo leftover) replica() storage.Replica {
	return storage.Replica{Group: lo.group, Incarnation: lo.incarnation, ID: lo.id}
}

// is reports whether the leftover is that of a replica in the log store.
func (lo leftover) is(st storage.Replica) bool {
	return st.Group == lo.group && st.Incarnation == lo.incarnation && st.ID == lo.id
}

// purges are the leftovers that are known, by the directory of each.
type purges struct {
	mu sync.Mutex
	of map[string]*purge
}

type purge struct {
	what    leftover
	noted   bool // in a file
	running bool
	done    bool
	failed  int // how often
	again   time.Time
}

// begin has a leftover purged, with the machine of the replica that is destroyed, or nil.
func (n *Node) beginPurge(what leftover, r *replica) {
	if r == nil {
		r = n.newReplica(what.replica())
		r.stopServing(fmt.Errorf("%w: it is removed", ErrNoReplica))
	}
	dir := r.machine.env.Dir
	n.purges.mu.Lock()
	p := n.purges.of[dir]
	if p == nil {
		p = &purge{what: what}
		if n.purges.of == nil {
			n.purges.of = make(map[string]*purge)
		}
		n.purges.of[dir] = p
	}
	begin := !p.running && !p.done
	p.running = p.running || begin
	n.purges.mu.Unlock()
	if begin {
		n.appliers.add(r, task{run: func(m *machine) { n.purgeMachine(p, m) }})
	}
}

// purgeMachine deletes all that a replica stored outside the log store. It can
// be interrupted at any point; the next start begins again. A state machine is
// opened for it if need be: only it knows what it has stored outside its directory.
func (n *Node) purgeMachine(p *purge, m *machine) {
	done, err := n.finishRemoval(m.env.Dir)
	if !done && err == nil {
		err = n.destroyMachine(p, m)
	}
	// Whoever still writes into the directory has done so when the purge has ended, also
	// when it has failed: the next attempt knows nothing of them.
	m.whenFree(func() {
		switch {
		case err != nil:
			n.dropSnapshots(m.env.Dir)
		case !done:
			err = n.removeDir(m.env.Dir)
		}
		n.purgeEnded(p, err)
	})
}

// dropSnapshots deletes what this node itself has put into the directory of a replica that
// is destroyed. The rest belongs to a state machine, which may be missing for a long time.
func (n *Node) dropSnapshots(dir string) { n.sweepFiles(dir, meta{}) }

// destroyMachine has a state machine delete what it has stored outside its directory.
func (n *Node) destroyMachine(p *purge, m *machine) error {
	kind := p.what.kind
	if kind == "" { // its own record did not say
		kind, _ = n.Kind(p.what.group)
	}
	if kind != "" && !p.what.noMachine {
		if err := m.open(kind); err != nil {
			return err
		}
		if m.isLogOnly() {
			return fmt.Errorf("only a state machine of kind %q knows what it has stored, and the "+
				"kind is not one of %q", kind, n.cfg.kindNames())
		}
	}
	if m.fault() != nil {
		return m.closeApart(true) // an applier must not wait for it
	}
	return m.close(true)
}

// purgeEnded hears how the work has ended. The next round does what follows.
func (n *Node) purgeEnded(p *purge, err error) {
	n.purges.mu.Lock()
	p.running, p.done = false, err == nil
	if err != nil {
		p.again = n.world.now().Add(n.ticks(min(minPurgePause<<min(p.failed, 10), maxPurgePause)))
		p.failed++
	}
	failed := p.failed
	n.purges.mu.Unlock()
	if err != nil && (failed <= patientPurges || failed%30 == 0) {
		n.logger.Error("state of a removed replica is not deleted, and is tried again",
			groupAttr(p.what.group), replicaAttr(p.what.id), countAttr(failed), errAttr(err))
	}
	n.lifecycle.poke()
}

// due takes out the purges that are done, and returns those that are to be tried again.
func (ps *purges) due(now time.Time) (done, again []*purge) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(ps.of)) {
		switch p := ps.of[dir]; {
		case p.done:
			done = append(done, p)
			delete(ps.of, dir)
		case !p.running && p.failed > 0 && !now.Before(p.again):
			again = append(again, p)
		}
	}
	return done, again
}

// goOnPurging notes what is purged, and tries again what is not.
func (l *lifecycle) goOnPurging() {
	n := l.node
	done, again := n.purges.due(n.world.now())
	ws := make([]write, 0, len(done))
	for _, p := range done {
		if p.noted {
			n.dropNote(p.what)
		}
		// The tombstone may be another one's by now, or have made room for a replica.
		if st, ok := n.store.Replica(p.what.group); ok && p.what.is(st) && st.Tombstone != nil {
			ws = append(ws, write{kind: writePurged, group: p.what.group})
		}
	}
	for i, err := range n.committer.wait(ws) {
		if err != nil {
			n.logger.Error("purge not noted", groupAttr(ws[i].group), errAttr(err))
		}
	}
	for _, p := range again {
		n.beginPurge(p.what, nil)
	}
}

// purging reports whether what a destroyed replica of the group stored is still
// being deleted.
func (n *Node) purging(g raftyard.GroupID) bool {
	st, ok := n.store.Replica(g)
	return ok && st.Tombstone != nil && !st.Tombstone.Purged
}

// leftovers counts what is still to be deleted of a group's replicas.
func (n *Node) leftovers(g raftyard.GroupID) (count int) {
	n.purges.mu.Lock()
	defer n.purges.mu.Unlock()
	for _, p := range n.purges.of {
		if p.what.group == g {
			count++
		}
	}
	return count
}

// setAside makes room for a new replica of a group if purging the last one fails again
// and again, and reports whether there is. What is left stays noted in a file.
func (n *Node) setAside(g raftyard.GroupID) bool {
	st, ok := n.store.Replica(g)
	if !ok {
		return true
	}
	n.purges.mu.Lock()
	p := n.purges.of[n.env(st).Dir]
	stuck := p != nil && !p.running && !p.done && p.failed >= patientPurges
	noted := p != nil && p.noted
	n.purges.mu.Unlock()
	if noted || !stuck {
		return noted
	}
	if err := n.writeNote(p.what); err != nil {
		n.logger.Error("note of what a removed replica stored", groupAttr(g), errAttr(err))
		return false
	}
	n.purges.mu.Lock()
	defer n.purges.mu.Unlock()
	p.noted = true
	return true
}

// resumePurges goes on, at the start, with what earlier runs have not deleted.
func (n *Node) resumePurges() {
	for _, what := range n.readNotes() {
		n.purges.mu.Lock()
		if n.purges.of == nil {
			n.purges.of = make(map[string]*purge)
		}
		n.purges.of[n.env(what.replica()).Dir] = &purge{what: what, noted: true}
		n.purges.mu.Unlock()
		n.beginPurge(what, nil)
	}
	for _, st := range n.store.Replicas() {
		if st.Tombstone == nil || st.Tombstone.Purged {
			continue
		}
		last, err := remainsIn(st.Tombstone)
		if err != nil {
			n.logger.Error("tombstone", groupAttr(st.Group), errAttr(err))
			continue
		}
		n.beginPurge(leftoverOf(st, last), nil)
	}
}

// noteSuffix ends the names of the notes of what is set aside, beside the directories
// of replicas.
const noteSuffix = ".left"

func (n *Node) notePath(what leftover) string {
	return n.env(what.replica()).Dir + noteSuffix
}

func (n *Node) writeNote(what leftover) (err error) {
	path := n.notePath(what)
	files := n.world.files
	if err = files.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := files.Create(path) // one that a crash has left is not whole
	if err != nil {
		return err
	}
	_, err = f.Write(what.encode())
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return files.SyncDir(filepath.Dir(path))
}

func (n *Node) dropNote(what leftover) {
	path := n.notePath(what)
	err := n.world.files.Remove(path)
	if err == nil {
		err = n.world.files.SyncDir(filepath.Dir(path))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.logger.Warn("note of what is deleted", groupAttr(what.group), errAttr(err))
	}
}

// readNotes returns what earlier runs have set aside.
func (n *Node) readNotes() (list []leftover) {
	dir := filepath.Join(n.cfg.Dir, replicasName)
	names, err := n.world.files.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.logger.Error("directories of replicas", errAttr(err))
	}
	for _, name := range names {
		if !strings.HasSuffix(name, noteSuffix) {
			continue
		}
		b, err := n.world.files.ReadFile(filepath.Join(dir, name))
		var what leftover
		if err == nil {
			what, err = decodeLeftover(b)
		}
		if err != nil {
			// A crash has left it, and a tombstone says the same; or the disk is bad.
			n.logger.Warn("note of what a removed replica stored", errAttr(err))
			continue
		}
		list = append(list, what)
	}
	return list
}
