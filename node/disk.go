package node

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/space"
	"github.com/raftyard/raftyard/storage"
)

// A DiskLevel says how much room the data directory's file system has. The
// databases write through memory maps, where a full disk is a signal that no
// program can handle, so a node gives up work well before that.
type DiskLevel int32

// The levels, each with what it adds to the one before.
const (
	// DiskOK: nothing is given up.
	DiskOK DiskLevel = iota
	// DiskSoft: no snapshots and no new replicas are taken any more, and leaderships
	// move to nodes that have more room.
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

const (
	// diskEvery is how often free space is looked at, and diskOften how often when
	// there is little of it.
	diskEvery = 250 * time.Millisecond
	diskOften = 25 * time.Millisecond

	// diskAhead is for how long space must last at the speed at which it goes: another
	// program may fill the disk faster than work can be given up.
	diskAhead = time.Second
)

// disk is what is known of the free space.
type disk struct {
	free  atomic.Int64
	level atomic.Int32

	// floor is what it takes to open the databases again; the other levels are
	// multiples of it.
	floor atomic.Int64
	probe func() int64 // returns the free bytes, negative if unknown
	need  func() int64 // returns the floor; nil: it stays as it is
	now   func() time.Time

	mu sync.Mutex // held for a look
	// burst is the speed as it shows at once, by which work moves away early, and steady
	// what has gone in the time for which space must last, by which work is refused: what
	// was taken at once need not be the beginning of more.
	burst, steady space.Speed
}

func newDisk(now func() time.Time, probe func() int64) *disk {
	return &disk{
		now: now, probe: probe,
		burst: space.New(diskEvery, 1), steady: space.New(diskAhead, 1),
	}
}

// needToOpen returns what tells how many bytes it takes to open the databases again: the log,
// and the state that the program's state machines keep. As long as nothing is known of that
// one it is taken to be like the log, and when it does not tell, to be as it was. It is for
// one goroutine at a time.
func needToOpen(logs func() int64, state func() storage.Upkeep) func() int64 {
	var known int64
	return func() int64 {
		log := logs()
		if state != nil {
			known = cmp.Or(state().OpenSpace, known)
		}
		return log + cmp.Or(known, log)
	}
}

// hasNoRoomFor reports whether this node takes no new replica of the group, and no snapshot.
// It goes on longer with the system group, without which nobody here hears that a group is
// deleted, or is to be elsewhere, which is what gives space back.
func (n *Node) hasNoRoomFor(g raftyard.GroupID) bool {
	level := n.disk.current()
	return level >= DiskFloor || level >= DiskSoft && g != raftyard.SystemGroup
}

func (d *disk) current() DiskLevel { return DiskLevel(d.level.Load()) }

// look brings the level up to date and reports whether it has changed, and when to look
// again.
func (d *disk) look() (level DiskLevel, changed bool, again time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.need != nil {
		d.floor.Store(d.need())
	}
	free, floor := d.see(), d.floor.Load()
	left := free - d.burst.Loss(diskAhead)
	sure := free - d.steady.Loss(diskAhead)
	d.free.Store(free)
	was := d.current()
	switch {
	case free < 0:
		level = DiskOK // it cannot be known; do not stop working for that
	case sure < limitOf(was, DiskFloor, floor):
		level = DiskFloor
	case sure < limitOf(was, DiskHard, floor):
		level = DiskHard
	case left < limitOf(was, DiskSoft, floor):
		level = DiskSoft
	}
	d.level.Store(int32(level))
	if again = diskEvery; free >= 0 && left < 4*floor {
		again = diskOften
	}
	return level, level != was, again
}

// limitOf returns the bytes below which a level begins. It ends a little higher, so that a
// node does not give work up and take it again all the time.
func limitOf(now, level DiskLevel, floor int64) int64 {
	limit := floor
	switch level {
	case DiskSoft:
		limit = 2 * floor
	case DiskHard:
		limit = floor + floor/2
	case DiskOK, DiskFloor:
	}
	if now >= level {
		limit += floor / 4
	}
	return limit
}

// see asks how much is free, and takes in how fast it goes.
func (d *disk) see() int64 {
	l := space.Look{Asked: d.now()}
	l.Free = d.probe()
	l.Seen = d.now()
	for _, s := range []*space.Speed{&d.burst, &d.steady} {
		if l.Free < 0 {
			s.Forget()
		} else {
			s.Take(l)
		}
	}
	return l.Free
}

// watchDisk looks at the free space until the node stops.
func (n *Node) watchDisk() {
	for {
		level, changed, again := n.disk.look()
		if changed {
			n.logger.Warn("disk level changed", stepAttr(level.String()),
				bytesAttr("free", n.disk.free.Load()), bytesAttr("floor", n.disk.floor.Load()))
			n.noteChange()
		}
		if !n.world.sleep(n.running, again) {
			return
		}
	}
}

// grows reports whether taking a message makes the log grow.
func grows(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgApp && len(m.GetEntries()) > 0
}
