package node

import (
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A DiskLevel says how much room the data directory's file system has. The
// databases write through memory maps, where a full disk is a signal that no
// program can handle, so a node gives up work well before that.
type DiskLevel int32

// The levels, each with what it adds to the one before.
const (
	// DiskOK: nothing is given up.
	DiskOK DiskLevel = iota
	// DiskSoft: snapshots are not received any more.
	DiskSoft
	// DiskHard: proposals through this node's replicas are refused with ErrDiskFull.
	DiskHard
	// DiskFloor: entries of other leaders are not taken either. The groups go on
	// without this node.
	DiskFloor
)

// String returns the word that the API uses.
func (l DiskLevel) String() string {
	switch l {
	case DiskOK:
		return "ok"
	case DiskSoft:
		return "soft"
	case DiskHard:
		return "hard"
	case DiskFloor:
		return "floor"
	default:
		return fmt.Sprintf("level(%d)", int32(l))
	}
}

// diskEvery is how often free space is looked at.
const diskEvery = 250 * time.Millisecond

// databases is how many there are to be opened: the log, and the state that a state
// machine of the program keeps, which is taken to be like it.
const databases = 2

// disk is what is known of the free space.
type disk struct {
	free  atomic.Int64
	level atomic.Int32

	// floor is what it takes to open the databases again; the other levels are
	// multiples of it.
	floor atomic.Int64
	probe func() int64 // returns the free bytes, negative if unknown
	need  func() int64 // returns the floor; nil: it stays as it is
}

func (d *disk) current() DiskLevel { return DiskLevel(d.level.Load()) }

// look brings the level up to date and reports whether it has changed.
func (d *disk) look() (level DiskLevel, changed bool) {
	if d.need != nil {
		d.floor.Store(d.need())
	}
	free, floor := d.probe(), d.floor.Load()
	switch {
	case free < 0:
		level = DiskOK // it cannot be known; do not stop working for that
	case free < floor:
		level = DiskFloor
	case free < floor+floor/2:
		level = DiskHard
	case free < 2*floor:
		level = DiskSoft
	}
	d.free.Store(free)
	return level, DiskLevel(d.level.Swap(int32(level))) != level
}

// watchDisk looks at the free space until the node stops.
func (n *Node) watchDisk() {
	look := func() {
		if level, changed := n.disk.look(); changed {
			n.logger.Warn("disk level changed", stepAttr(level.String()),
				bytesAttr("free", n.disk.free.Load()), bytesAttr("floor", n.disk.floor.Load()))
			n.noteChange()
		}
	}
	look()
	n.world.every(n.running, diskEvery, look)
}

// grows reports whether taking a message makes the log grow.
func grows(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgApp && len(m.GetEntries()) > 0
}
