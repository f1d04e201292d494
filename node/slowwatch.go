package node

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs"
)

// A disk that has become slow slows every group down that its node leads, and one that does
// not answer at all stops them: heartbeats need no disk, so nobody would take over. The
// node watches how long its syncs take and
//
//   - gives leaderships away when they are slow, one node at a time;
//   - resigns all of them, which needs no disk, when one does not come back: it makes no
//     tick and sends nothing, so the others elect;
//   - ends the process when it still has not: nobody knows what is on the disk.

// slowEvery is how often the watch looks.
const slowEvery = 100 * time.Millisecond

// watchSyncs looks at the syncs until the node stops or has failed.
func (n *Node) watchSyncs() {
	n.world.every(n.running, slowEvery, func() {
		if n.Err() == nil {
			n.lookAtSyncs()
		} else if !n.silenced {
			n.silence()
		}
	})
}

func (n *Node) lookAtSyncs() {
	if err := n.store.Err(); err != nil {
		n.fail(fmt.Errorf("log store: %w", err)) // in what it does beside commits
		return
	}
	now := n.world.now()
	if n.store.Held() {
		n.slow.waitLog(now) // for space, not for the disk
	}
	others, first := n.otherSyncs(now)
	v := n.slow.judge(now, others, first)
	if v.changed {
		n.logger.Warn("how fast the disk is has changed", slog.Bool("slow", v.slow),
			slog.Bool("stuck", v.stuck), slog.Duration("sync", v.takes))
		n.noteChange()
	}
	if v.failed != nil {
		n.fail(v.failed)
	}
}

// otherSyncs are how long syncs take on the other nodes, and whether this one is the first
// of those that are slow: the slowest, and of two the one with the lower id.
func (n *Node) otherSyncs(now time.Time) (others []time.Duration, first bool) {
	mine := n.slow.condition(now)
	first = true
	for _, p := range n.conditions.all(now) {
		others = append(others, p.Sync)
		switch {
		case !p.Slow:
		case p.Shedding && !mine.Shedding:
			first = false
		case p.Shedding == mine.Shedding &&
			(p.Sync > mine.Sync || p.Sync == mine.Sync && p.node < n.cfg.ID):
			first = false
		}
	}
	return others, first
}

// errMuted says why a node whose disk is stuck serves nothing.
func (n *Node) errMuted(g raftyard.GroupID) error {
	return fmt.Errorf("group %d: %w: the disk of node %d does not answer", g, ErrNoLeader, n.cfg.ID)
}

// refusesMuted ends a call if the node serves nothing because its disk is stuck.
func (w *worker) refusesMuted(c *call) bool {
	muted := w.node.slow.muted.Load()
	if muted {
		c.finish(group.Result{}, w.node.errMuted(c.r.group))
	}
	return muted
}

// isHeldByDisk reports whether nothing can be written before there is space again.
func (n *Node) isHeldByDisk() bool {
	if held := n.cfg.logHeld; held != nil {
		return held()
	}
	return n.store.Held()
}

// diskRefuses says why the disk lets a replica of this node take no proposals, or nothing.
func (n *Node) diskRefuses(r *replica) error {
	switch {
	case n.slow.muted.Load():
		return n.errMuted(r.group)
	case n.disk.current() >= DiskHard && r.group != raftyard.SystemGroup:
		return fmt.Errorf("group %d at node %d: %w", r.group, r.node, ErrDiskFull)
	default:
		return nil
	}
}

const (
	// probeName is the file that is written when nothing else is, so that it is known
	// whether the disk still answers.
	probeName = "probe"
	// probeAfter is how long nothing must have been synced for that.
	probeAfter = 2 * time.Second
)

// probeDisk writes and syncs a few bytes now and then while nobody else syncs anything.
func (n *Node) probeDisk() {
	path := filepath.Join(n.cfg.Dir, probeName)
	var file vfs.File
	n.world.every(n.running, probeAfter, func() {
		if n.Err() != nil || n.disk.current() >= DiskFloor || !n.slow.idle(n.world.now()) {
			return
		}
		n.slow.begin(syncProbe, n.world.now())
		err := n.probeOnce(path, &file)
		n.slow.end(syncProbe, n.world.now())
		if err != nil {
			n.fail(fmt.Errorf("the data directory cannot be written: %w", err))
		}
	})
	if file != nil {
		if err := file.Close(); err != nil {
			n.logger.Warn("probe not closed", errAttr(err))
		}
	}
}

func (n *Node) probeOnce(path string, file *vfs.File) (err error) {
	if *file == nil {
		if *file, err = n.world.files.Create(path); errors.Is(err, syscall.EISDIR) {
			// That is no reason to end: the name is the node's.
			if err = n.world.files.Remove(path); err == nil {
				*file, err = n.world.files.Create(path)
			}
		}
		if err != nil {
			*file = nil
			return err
		}
	}
	text := []byte("this file only shows that the disk answers\n")
	if _, err = (*file).WriteAt(text, 0); err != nil {
		return err
	}
	return (*file).Sync()
}

// idle reports whether nothing is under way, and nothing was synced for a while.
func (s *slowness) idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.began) == 0 && now.Sub(s.last) >= probeAfter
}

// silence closes the connections to the other nodes when the node has failed: nothing is
// vouched for any more, and a process that cannot end because of its disk must not look
// alive.
func (n *Node) silence() {
	n.silenced = true
	if err := n.transport.Close(); err != nil {
		n.logger.Warn("connections to other nodes not closed", errAttr(err))
	}
}
