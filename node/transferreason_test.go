package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// TestTransferNamesTheSnapshot: whoever wants a node to lead that is being sent a snapshot is
// told so, also while its other messages are late. Then it is no use to look for what is
// wrong with the node or the network: it takes until the snapshot is there.
func TestTransferNamesTheSnapshot(t *testing.T) {
	net := transport.NewMemory(8)
	c := newMemoryCluster(t, 3, net)
	c.createSpec(Spec{
		ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	c.moveLeader(1, 1)
	c.close(3)
	for i := range 60 {
		c.add(1, 1, fmt.Sprint("word ", i))
	}
	c.eventually("the leader has cut its log", func() bool { return c.status(1, 1).First > 20 })
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hook := func() { <-release }
	c.onWriteTo.Store(&hook)
	c.open(3, nil)
	progress := func() PeerProgress {
		for _, p := range c.status(1, 1).Progress {
			if p.Node == 3 {
				return p
			}
		}
		return PeerProgress{}
	}
	c.eventually("a snapshot is on its way", func() bool { return progress().State == "snapshot" })
	named := func(when string) {
		t.Helper()
		err := c.nodes[1].TransferLeader(within(t, testTimeout), 1, 3)
		if !errors.Is(err, ErrTransfer) || !strings.Contains(err.Error(), "sent a snapshot") {
			t.Errorf("TransferLeader, %s = %v; want that it is being sent a snapshot", when, err)
		}
		if p := progress(); p.State != "snapshot" {
			t.Fatalf("%s: the snapshot has not been on its way any more: %+v", when, p)
		}
	}
	named("when it answers")
	net.SetLoss(3, 1, 1)
	c.eventually("the leader hears nothing", func() bool { return !progress().RecentActive })
	named("when its answers do not arrive")
	net.SetLoss(1, 3, 1)
	c.eventually("it hears no leader", func() bool { return c.status(3, 1).Leader == 0 })
	named("when heartbeats do not arrive")
}
