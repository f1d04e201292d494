package node

import (
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// largeWords writes to group 2 words of 64 KiB until so many bytes have gone through the log.
func (c *cluster) largeWords(bytes int) {
	c.t.Helper()
	word := strings.Repeat("w", 64<<10)
	for ; bytes > 0; bytes -= len(word) {
		c.add(1, 2, word)
	}
}

// newSmallLogs is a node whose logs have 1 MiB each.
func newSmallLogs(t *testing.T) *cluster {
	t.Helper()
	c := newMemoryCluster(t, 0, transport.NewMemory(1))
	c.peers = []Peer{{ID: 1, Addr: transport.MemoryAddr(1)}}
	c.logBytes = 1 << 20
	c.open(1, nil)
	return c
}

// TestLogIsBoundedInBytes: large entries make snapshots due long before there are as many
// as the group says, and do not stay in the log behind them. So they do when the node is
// started again and again before the log is full.
func TestLogIsBoundedInBytes(t *testing.T) {
	c := newSmallLogs(t)
	c.createSpec(Spec{ID: 2, Kind: "kept", Voters: []raftyard.NodeID{1}})
	// What is behind the snapshot and what is before it, and what comes meanwhile.
	const most = 3 << 20
	short := func() bool { return c.status(1, 2).Bytes <= most }
	c.largeWords(12 << 20)
	c.eventually("the log is short", short)
	if first := c.status(1, 2).First; first < 50 {
		t.Errorf("the log begins at %d", first)
	}
	for range 8 {
		c.close(1)
		c.open(1, nil)
		c.largeWords(1 << 19)
	}
	c.eventually("the log is short after many starts", short)
}

// TestPinsHoldSomeLog: a snapshot that is being sent keeps what comes behind it, up to a
// bound.
func TestPinsHoldSomeLog(t *testing.T) {
	c := newSmallLogs(t)
	c.createSpec(Spec{
		ID: 2, Kind: "kept", Voters: []raftyard.NodeID{1}, SnapshotEntries: 1 << 30,
	})
	c.largeWords(1 << 19)
	r := c.nodes[1].replica(2)
	first := c.status(1, 2).Last
	j := &sendJob{}
	r.pins.add(j, first)
	c.largeWords(4 << 20)
	if got := c.status(1, 2).First; got > first+1 {
		t.Errorf("the log begins at %d, %d is pinned", got, first)
	}
	r.pins.remove(j)
	c.largeWords(2 << 20)
	c.eventually("the log is cut", func() bool { return c.status(1, 2).First > first+1 })
}

// TestSizeOfStateIsKnown: how much log a replica keeps depends on how large its state is. It
// knows that as well when it has its state from another one, and after a start.
func TestSizeOfStateIsKnown(t *testing.T) {
	c := newCluster(t, 2)
	c.createSpec(Spec{
		ID: 2, Kind: "list", Voters: []raftyard.NodeID{1}, TrailingEntries: 1,
	})
	c.largeWords(1 << 18)
	if _, err := c.nodes[1].TakeSnapshot(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	size := func(id raftyard.NodeID) (size int64) {
		r := c.nodes[id].replica(2)
		onWorker(r, func() { size = r.snap.size })
		return size
	}
	want := size(1)
	if want < 1<<18 {
		t.Fatalf("the state is said to have %d bytes", want)
	}
	members := Members{Voters: nodeIDs(1, 2)}
	if _, err := c.nodes[1].SetMembers(t.Context(), 2, members, true); err != nil {
		t.Fatal(err)
	}
	if got := size(2); got != want {
		t.Errorf("who has it from another one takes it for %d bytes, want %d", got, want)
	}
	c.close(2)
	c.open(2, nil)
	if got := size(2); got != want {
		t.Errorf("after a start it is taken for %d bytes, want %d", got, want)
	}
}

// TestPostponedWithoutEntries: a descriptor that says nothing of snapshots means the default,
// also for the next try after one that has failed, which would otherwise come at each entry.
func TestPostponedWithoutEntries(t *testing.T) {
	c := newSmallLogs(t)
	c.createSpec(Spec{ID: 2, Kind: "list", Voters: []raftyard.NodeID{1}})
	r := c.nodes[1].replica(2)
	var wait uint64
	onWorker(r, func() {
		r.meta.State.Descriptor.SnapshotEntries = 0
		r.postpone()
		wait = r.snap.next - r.applied.Load()
	})
	if wait != defaultSnapshots/snapshotRetry {
		t.Errorf("the next try comes after %d entries, want %d", wait,
			defaultSnapshots/snapshotRetry)
	}
}
