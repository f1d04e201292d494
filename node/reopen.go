package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/raftyard/raftyard/group"
)

// A replica in quarantine is opened again as at the start of the node: from what is
// durable, with a new state machine, under the same id.
//
//	tasks under way end ──▶ state machine closed ──▶ worker retires the replica ──▶ what it
//	had on its way to the log store is written ──▶ opened
//
// Until its worker retires it, a replica that goes on without its state machine votes.

// known is what an earlier life of a replica knows, in the same run of the program.
type known struct {
	commit uint64      // up to where its log is committed
	skip   *group.Skip // of the entry at which its state machine stands, or nil
}

// reopening says how a replica is opened again.
type reopening struct {
	careful span // what is applied one by one
	// rebuild: the state machine takes over the state in the replica's file, whatever it
	// has itself. The replica's record says so already, should another reopening be faster.
	rebuild bool
	// skip is a committed skip of the entry at which the state machine stands, or nil.
	skip *group.Skip
	// told hear, once, how it has ended. Each holds one.
	told []chan error
}

func (how *reopening) tell(err error) {
	for _, told := range how.told {
		told <- err
	}
}

// join has one reopening do what another one was to do, which has come before it began.
func (how *reopening) join(other *reopening) {
	how.rebuild = how.rebuild || other.rebuild
	if how.skip == nil {
		how.skip = other.skip
	}
	switch {
	case how.careful.last == 0:
		how.careful = other.careful
	case other.careful.last != 0:
		how.careful.first = min(how.careful.first, other.careful.first)
		how.careful.last = max(how.careful.last, other.careful.last)
	}
	how.told = append(how.told, other.told...)
}

// reopen has a replica opened again that is in quarantine.
func (n *Node) reopen(r *replica, how *reopening) {
	begin := func(m *machine) {
		n.files.start(func() {
			if err := m.closeApart(false); err != nil {
				// A state machine that cannot close may still be opened again; one that
				// hangs may not.
				r.note("state machine not closed: %v", err)
				if errors.Is(err, errHangs) {
					how.tell(faulty(MachineFailed, err))
					return
				}
			}
			n.lifecycle.reopen(r, how)
		})
	}
	n.appliers.add(r, task{run: begin, drop: how.tell})
}

// reopen has a round open a replica again: once, for all who have asked for it by then.
func (l *lifecycle) reopen(r *replica, how *reopening) {
	l.mu.Lock()
	if waiting := l.reopens[r]; waiting != nil {
		waiting.join(how)
	} else {
		l.reopens[r] = how
	}
	l.mu.Unlock()
	l.poke()
}

// reopenAll opens replicas again.
func (l *lifecycle) reopenAll(rs map[*replica]*reopening) {
	for _, r := range slices.SortedFunc(maps.Keys(rs), byGroup) {
		err := l.reopenOne(r, rs[r])
		if err != nil {
			l.node.logger.Error("replica not opened again", groupAttr(r.group), errAttr(err))
		}
		rs[r].tell(err)
	}
}

// rest has the worker retire a replica between two steps, and returns up to where its log
// is committed.
func (n *Node) rest(r *replica) (commit uint64) {
	reason := fmt.Errorf("group %d: %w: the replica is opened again", r.group, ErrNoReplica)
	for r.serving() {
		asked := make(chan struct{})
		posted := r.worker.box.control(func() {
			r.worker.guard(r, "rest", func() {
				if r.busy {
					return
				}
				commit = r.raft.Committed()
				n.liveness.turn.Add(1) // it leads nothing any more
				r.worker.retire(r, reason)
			})
			close(asked)
		})
		if !posted {
			return commit
		}
		await[struct{}](n.world, nil, asked, r.worker.proc.done)
		if r.serving() && !n.world.sleep(n.running, pollEvery) {
			break
		}
	}
	r.worker.halt(r, reason) // it may have stopped for another reason
	return commit
}

func (l *lifecycle) reopenOne(old *replica, how *reopening) error {
	n := l.node
	if n.replica(old.group) != old {
		return fmt.Errorf("group %d: %w: replica %d has gone", old.group, ErrNoReplica, old.id)
	}
	before := known{commit: n.rest(old), skip: how.skip}
	// What the worker has submitted must be in the store before it is read.
	last := write{kind: writeNothing, group: old.group}
	old.meta.Rebuild = old.meta.Rebuild || how.rebuild
	if old.meta.Rebuild {
		last = write{group: old.group, update: old.metaUpdate()}
	}
	if err := n.committer.wait([]write{last})[0]; err != nil {
		return err
	}
	st, ok := n.store.Replica(old.group)
	if !ok || st.Tombstone != nil {
		return fmt.Errorf("group %d: %w", old.group, ErrNoReplica)
	}
	r := n.newReplica(st)
	r.events, r.machine.careful = old.events, how.careful
	r.old = old.old // it comes from the same disk
	r.attempts.Store(old.attempts.Load())
	r.lives = old.lives + 1
	r.note("opened again")
	err := n.bringUp(r, st, before)
	if err == nil {
		err = r.fault()
	}
	return err
}
