package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/transport"
)

// TestNothingComesToAFullNode: a node whose disk is short takes no snapshot, and makes no
// replica for messages that others send to one. It does when there is room.
func TestNothingComesToAFullNode(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2)
	c.awaitReady(1, 2, 3)
	full := c.nodes[3]
	env := transport.Envelope{
		Group: 1, Incarnation: c.incarnation(3, 1),
		From: transport.Endpoint{Node: 1, Replica: 1}, To: transport.Endpoint{Node: 3, Replica: 9},
	}
	c.full[3].Store(true)
	c.eventually("it sees that its disk is full", func() bool {
		return full.disk.current() >= DiskSoft
	})
	if full.lifecycle.wanted(&env) != nil {
		t.Error("a replica is to be made on a full disk")
	}
	peers := full.transport.Peers()
	i := slices.IndexFunc(peers, func(p transport.PeerStatus) bool { return p.Up })
	if i < 0 {
		t.Fatal("nobody is connected")
	}
	err := (&handler{full}).HandleSnapshot(t.Context(), peers[i].Identity, env,
		strings.NewReader("state"))
	if !errors.Is(err, ErrDiskFull) {
		t.Errorf("a snapshot for a full node: %v, want ErrDiskFull", err)
	}
	c.full[3].Store(false)
	c.eventually("it sees that there is room", func() bool { return full.disk.current() == DiskOK })
	if full.lifecycle.wanted(&env) == nil {
		t.Error("no replica is to be made where there is room")
	}
}

// TestSystemGroupHasRoomLonger: what tells a node that groups are deleted, which gives space
// back, comes to it until there is none at all.
func TestSystemGroupHasRoomLonger(t *testing.T) {
	n := &Node{disk: newDisk(time.Now, nil)}
	for level, want := range map[DiskLevel][2]bool{ // of the system group, of another
		DiskOK: {false, false}, DiskSoft: {false, true}, DiskHard: {false, true},
		DiskFloor: {true, true},
	} {
		n.disk.level.Store(int32(level))
		got := [2]bool{n.hasNoRoomFor(raftyard.SystemGroup), n.hasNoRoomFor(1)}
		if got != want {
			t.Errorf("no room at %v: %t, want %t", level, got, want)
		}
	}
}

// TestSlowDisksShedOneAfterTheOther: a node whose syncs are slow gives all leaderships away.
// A second one that is as slow keeps its own meanwhile, though a third could take them.
func TestSlowDisksShedOneAfterTheOther(t *testing.T) {
	c := newCluster(t, 3)
	for g := raftyard.GroupID(1); g <= 4; g++ {
		c.create(g, 1, 2, 3)
		c.moveLeader(g, 2)
	}
	c.slowDown(2, 5*time.Second)
	c.eventually("node 2 leads nothing", func() bool { return leads(c.nodes[2]) == 0 })
	c.eventually("node 1 knows why", func() bool { return c.nodes[1].conditionOf(2).Shedding })
	for g := raftyard.GroupID(1); g <= 4; g++ {
		c.moveLeader(g, 1)
	}
	c.slowDown(1, 2*time.Second)
	c.eventually("node 3 knows that both are slow", func() bool {
		return c.nodes[3].conditionOf(1).Slow && c.nodes[3].conditionOf(2).Slow
	})
	if mine := c.nodes[1].condition(); mine.Shedding || leads(c.nodes[1]) != 4 {
		t.Errorf("node 1 leads %d groups, %+v; want all four, until node 2 is well",
			leads(c.nodes[1]), mine)
	}
	c.add(3, 1, "a")
}

// slowDown has a sync of a node be under way since a while ago, and never come back.
func (c *cluster) slowDown(id raftyard.NodeID, since time.Duration) {
	s := &c.nodes[id].slow
	s.mu.Lock()
	s.limits.stuck, s.limits.fail = time.Hour, time.Hour
	s.mu.Unlock()
	s.begin(syncProbe, time.Now().Add(-since))
}

// TestSnapshotThatCannotBeWritten: without a snapshot no log is cut, and when it can be
// written the next one is.
func TestSnapshotThatCannotBeWritten(t *testing.T) {
	const every, trailing = 20, 5
	c := newCluster(t, 1)
	c.createSpec(Spec{
		ID: 1, Kind: "list", Voters: []raftyard.NodeID{1},
		SnapshotEntries: every, TrailingEntries: trailing,
	})
	dir := c.nodes[1].replica(1).machine.env.Dir
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o750),
		os.WriteFile(dir, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	first := c.status(1, 1).First
	var want []string
	for i := range 4 * every {
		want = append(want, strconv.Itoa(i))
		c.add(1, 1, want[i])
	}
	ctx := within(t, testTimeout)
	if _, err = c.nodes[1].TakeSnapshot(ctx, 1); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("TakeSnapshot = %v, want that its directory is none", err)
	}
	if st := c.status(1, 1); st.First != first || st.Quarantine != nil {
		t.Errorf("the log begins at %d, at %d before, quarantine %+v; there is no snapshot",
			st.First, first, st.Quarantine)
	}
	if err = os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err = c.nodes[1].TakeSnapshot(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if st := c.status(1, 1); st.First <= first {
		t.Errorf("the log begins at %d, at %d before the snapshot", st.First, first)
	}
	c.close(1)
	c.open(1, nil)
	c.wantWords(1, 1, want...)
}

// crowded is a disk on which there is no space behind the first bytes of a file.
type crowded struct{ vfs.FS }

func (d crowded) CreateNew(path string) (vfs.File, error) {
	f, err := d.FS.CreateNew(path)
	return crowdedFile{f}, err
}

type crowdedFile struct{ vfs.File }

func (f crowdedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b[:1])
	return n, errors.Join(err, syscall.ENOSPC)
}

// TestHalfASnapshotFileIsRemoved: what could not be written for want of space takes none.
func TestHalfASnapshotFileIsRemoved(t *testing.T) {
	dir := t.TempDir()
	_, err := writeFileSync(crowded{vfs.OS{}}, dir, "snapshot-1", listSnapshot("state"))
	left, rerr := os.ReadDir(dir)
	if !errors.Is(err, syscall.ENOSPC) || rerr != nil || len(left) != 0 {
		t.Errorf("writeFileSync = %v, and left %v, %v", err, left, rerr)
	}
}
