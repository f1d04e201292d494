package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// leads counts the groups that a node leads.
func leads(n *Node) int {
	_, leaders := n.countReplicas()
	return leaders
}

// TestFullDiskSheds has the node that leads everything run out of space: others lead
// then, also the system group, and it is given no new replica.
func TestFullDiskSheds(t *testing.T) {
	c := newCluster(t, 4)
	const groups = 20
	for g := range raftyard.GroupID(groups) {
		c.create(g+1, 1, 2, 3)
	}
	for g := range raftyard.GroupID(groups) {
		if err := c.nodes[1].TransferLeader(t.Context(), g+1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nodes[1].TransferLeader(t.Context(), raftyard.SystemGroup, 1); err != nil {
		t.Fatal(err)
	}
	c.full[1].Store(true)
	c.full[4].Store(true)
	began := time.Now()
	c.eventually("node 1 leads nothing", func() bool {
		r := c.nodes[1].replica(raftyard.SystemGroup)
		return leads(c.nodes[1]) == 0 && r.view.Load().Leader != r.id
	})
	t.Logf("%d leaderships gone after %v", groups+1, time.Since(began))
	if shed := c.nodes[1].metrics.leadersShed.Load(); shed > groups+1 {
		t.Errorf("%d have been taken of %d", shed, groups+1)
	}
	for g := range raftyard.GroupID(groups) {
		c.add(2, g+1, "x")
	}

	c.eventually("node 2 knows that node 4 is full", func() bool { return c.nodes[2].short(4) })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err := c.nodes[2].SetMembers(ctx, 1, Members{Voters: []raftyard.NodeID{2, 3, 4}}, true)
	if !errors.Is(err, ErrUnhealthy) {
		t.Errorf("a member on a full node: %v, want ErrUnhealthy", err)
	}
	err = c.nodes[2].TransferLeader(ctx, 2, 1)
	if !errors.Is(err, ErrTransfer) {
		t.Errorf("a leadership for a full node: %v, want ErrTransfer", err)
	}
	for _, st := range c.nodes[2].Nodes(ctx) {
		want := DiskOK.String()
		if st.ID == 1 || st.ID == 4 {
			want = DiskFloor.String()
		}
		if st.DiskLevel != want {
			t.Errorf("node %d is shown as %q, want %q", st.ID, st.DiskLevel, want)
		}
	}
}

// TestShedStaysWithTheState has nobody else with the state machine of a group: the node that
// is short of space goes on leading it, and gives the system group away.
func TestShedStaysWithTheState(t *testing.T) {
	t.Parallel()
	c := newLogOnlyCluster(t, 3, 2, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.ledBy(1)
	n := c.nodes[1]
	if err := n.TransferLeader(t.Context(), raftyard.SystemGroup, 1); err != nil {
		t.Fatal(err)
	}
	before := c.status(1, 1).Term
	c.full[1].Store(true)
	c.eventually("the system group is led elsewhere", func() bool {
		return n.metrics.leadersShed.Load() == 1
	})
	if now := c.status(1, 1); now.Role != "leader" || now.Term != before {
		t.Errorf("it is %s in term %d, was leader in term %d", now.Role, now.Term, before)
	}
}

// TestStuckDisk has a sync of the node that leads everything not come back: it resigns,
// serves nothing meanwhile, and takes part again when the sync has come back.
func TestStuckDisk(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 1) // with the only voter there
	c.add(1, 1, "a")
	c.add(1, 2, "a")
	if err := c.nodes[1].TransferLeader(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	stuck := c.nodes[1]
	stuck.slow.mu.Lock()
	stuck.slow.limits.fail = time.Hour
	stuck.slow.mu.Unlock()
	stuck.slow.begin(syncProbe, time.Now().Add(-defaultStuckSync-time.Second))
	c.eventually("node 1 resigns", func() bool { return stuck.slow.muted.Load() })
	ready, checks := stuck.Ready()
	if last := checks[len(checks)-1]; ready || last.OK || !strings.Contains(last.Detail, "disk") {
		t.Errorf("a node whose disk is stuck: ready = %t, %+v", ready, checks)
	}
	if err := stuck.Live(); err != nil {
		t.Errorf("a node whose disk may come back is to be restarted: %v", err)
	}
	for _, g := range []raftyard.GroupID{1, 2} {
		short, cancel := context.WithTimeout(t.Context(), testTimeout)
		p := group.Proposal{ID: group.CommandID{1, byte(g)}, Data: []byte("never")}
		if _, err := stuck.proposeLocal(short, here(g), p); !errors.Is(err, ErrNoLeader) {
			t.Errorf("a write to group %d at a node that is stuck: %v, want ErrNoLeader", g, err)
		}
		cancel()
	}
	c.eventually("somebody else leads", func() bool {
		leader := c.nodes[2].replica(1).view.Load().LeaderNode
		return leader == 2 || leader == 3
	})
	c.add(2, 1, "b")
	for _, st := range c.nodes[2].Nodes(t.Context()) {
		if st.ID == 1 && (st.Live || st.DiskSpeed != speedStuck) {
			t.Errorf("a node that is stuck is shown as live: %t, %q", st.Live, st.DiskSpeed)
		}
	}
	stuck.slow.end(syncProbe, time.Now())
	c.eventually("node 1 takes part again", func() bool { return !stuck.slow.muted.Load() })
	if ready, checks := stuck.Ready(); !ready {
		t.Errorf("a node whose disk answers again is not ready: %+v", checks)
	}
	c.eventually("node 1 catches up", func() bool { return len(c.words(1, 1)) == 2 })
	c.add(1, 2, "b")
	if err := stuck.Err(); err != nil {
		t.Error(err)
	}
}

// TestDiskThatNeverAnswers: a node whose sync does not come back for long fails, and is
// silent for the others.
func TestDiskThatNeverAnswers(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	stuck := c.nodes[1]
	stuck.slow.begin(syncProbe, time.Now().Add(-defaultFailSync))
	c.eventually("node 1 fails", func() bool { return stuck.Err() != nil })
	if err := stuck.Err(); !errors.Is(err, errStuck) {
		t.Errorf("Err = %v, want errStuck", err)
	}
	c.eventually("node 1 is silent", func() bool {
		return !c.nodes[2].liveNodes()[1] && !c.nodes[3].liveNodes()[1]
	})
	c.add(2, 1, "a")
}

// TestDiskNeedIsThatOfBothDatabases: the state's need is taken to be the log's only until
// it is known, and does not come back to that when it cannot be told for a moment.
func TestDiskNeedIsThatOfBothDatabases(t *testing.T) {
	const logs = 1000
	var state int64
	need := needToOpen(func() int64 { return logs },
		func() storage.Upkeep { return storage.Upkeep{OpenSpace: state} })
	for i, st := range []struct{ state, want int64 }{
		{state: 0, want: 2 * logs},
		{state: 10, want: logs + 10},
		{state: 0, want: logs + 10},
		{state: 3000, want: logs + 3000},
	} {
		state = st.state
		if got := need(); got != st.want {
			t.Errorf("step %d, %d for the state: %d are needed, want %d",
				i, st.state, got, st.want)
		}
	}
	if got := needToOpen(func() int64 { return logs }, nil)(); got != 2*logs {
		t.Errorf("nothing is told of the state: %d are needed, want %d", got, 2*logs)
	}
}
