package node

import (
	"strconv"
	"sync"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestSnapshotOfWhatCameDuringOne writes while a snapshot is on its way to the disk, and
// nothing behind it: the log is cut behind what came meanwhile as well.
func TestSnapshotOfWhatCameDuringOne(t *testing.T) {
	const every, trailing = 20, 5
	c := newCluster(t, 1)
	c.createSpec(Spec{
		ID: 2, Kind: "hooked", Voters: []raftyard.NodeID{1},
		SnapshotEntries: every, TrailingEntries: trailing,
	})
	there, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook := func() {
		once.Do(func() { close(there) })
		<-release
	}
	c.onWriteTo.Store(&hook)
	word := 0
	write := func() {
		c.add(1, 2, strconv.Itoa(word))
		word++
	}
	for held := false; !held; {
		write()
		select {
		case <-there:
			held = true
		default:
		}
	}
	for range 3 * every {
		write()
	}
	close(release)
	c.eventually("the log is as short as it may be", func() bool {
		st := c.status(1, 2)
		return st.Last-st.First < every+trailing
	})
}
