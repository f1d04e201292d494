package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

func (c *cluster) problems(at raftyard.NodeID, g raftyard.GroupID) []string {
	c.t.Helper()
	st, err := c.nodes[at].Group(c.t.Context(), g)
	if err != nil {
		c.t.Fatalf("Group(%d) = %v", g, err)
	}
	return st.Problems
}

func TestMemberThatIsDownIsAProblem(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.eventually("all is well", func() bool { return len(c.problems(1, 1)) == 0 })
	c.close(3)
	c.eventually("the missing member shows", func() bool {
		return slices.Contains(c.problems(1, 1), "under_replicated")
	})
	c.eventually("in the system group as well", func() bool {
		return slices.Contains(c.nodes[1].Status(t.Context()).System.Problems, "under_replicated")
	})
	list, _, err := c.nodes[2].Groups(t.Context(), GroupFilter{Problem: "under_replicated"})
	if err != nil || len(list) != 1 || list[0].ID != 1 {
		t.Errorf("Groups with the problem = %+v, %v; want group 1", list, err)
	}
	c.open(3, nil)
	c.eventually("all is well again", func() bool { return len(c.problems(1, 1)) == 0 })
}

func TestSystemGroupCanBeLookedAt(t *testing.T) {
	c := newCluster(t, 2)
	c.leader(0)
	st, err := c.nodes[1].Group(t.Context(), raftyard.SystemGroup)
	if err != nil || st.Kind != systemKind || len(st.Replicas) != 2 || st.Leader == 0 {
		t.Errorf("Group(0) = %+v, %v", st, err)
	}
}

// TestChangeCanBeTakenBack wants a member on a node that is down, which cannot be
// reached, and then wants the old members again.
func TestChangeCanBeTakenBack(t *testing.T) {
	c := newCluster(t, 4)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.close(4)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	away := Members{Voters: []raftyard.NodeID{2, 3, 4}}
	_, err := c.nodes[1].SetMembers(short, 1, away, true)
	if !errors.Is(err, ErrNotReached) || NotApplied(err) {
		t.Errorf("SetMembers to a node that is down = %v, want ErrNotReached, with an effect", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	other := Members{Voters: []raftyard.NodeID{1, 2}}
	if _, err = c.nodes[1].SetMembers(ctx, 1, other, false); !errors.Is(err, ErrChangeInProgress) {
		t.Errorf("SetMembers to a third set = %v, want ErrChangeInProgress", err)
	}
	back := Members{Voters: []raftyard.NodeID{1, 2, 3}}
	st, err := c.nodes[2].SetMembers(ctx, 1, back, true)
	if err != nil || len(st.Members) != 3 {
		t.Fatalf("SetMembers back = %+v, %v", st.Members, err)
	}
	// Somebody who names the epoch knows what is replaced.
	if _, err = c.nodes[1].SetMembers(ctx, 1, away, false); err != nil {
		t.Fatal(err)
	}
	c.eventually("the learner is added", func() bool {
		st, err = c.nodes[1].Group(ctx, 1)
		return err == nil && len(st.Members) == 4 &&
			strings.Contains(st.Steering, "has not caught up")
	})
	other.ExpectEpoch = st.Epoch
	if _, err = c.nodes[1].SetMembers(ctx, 1, other, true); err != nil {
		t.Errorf("SetMembers at the present epoch = %v", err)
	}
	c.wantWords(1, 1, "a")
	c.eventually("nothing is waited for", func() bool {
		st, err = c.nodes[2].Group(ctx, 1)
		return err == nil && st.Steering == ""
	})
}

func TestNodeWithoutTheRegistrySaysSo(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	for id := range raftyard.NodeID(3) {
		c.close(id + 1)
	}
	c.open(1, nil)
	n := c.nodes[1]
	if _, _, err := n.Groups(t.Context(), GroupFilter{}); !errors.Is(err, ErrNotReady) {
		t.Errorf("Groups = %v, want ErrNotReady", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := n.Propose(short, 99, []byte("x"))
	if !errors.Is(err, ErrNotReady) || !NotApplied(err) {
		t.Errorf("Propose to an unknown group = %v, want ErrNotReady", err)
	}
	ready, checks := n.Ready()
	i := slices.IndexFunc(checks, func(k Check) bool { return k.Name == "registry" })
	if ready || !strings.Contains(checks[i].Detail, "majority") {
		t.Errorf("Ready = %t, %+v", ready, checks)
	}
}

func TestDiskLevels(t *testing.T) {
	free := int64(1000)
	var now time.Time
	d := newDisk(func() time.Time { return now }, func() int64 { return free })
	d.floor.Store(100)
	for _, tt := range []struct {
		free int64
		want DiskLevel
	}{
		{1000, DiskOK},
		{200, DiskOK},
		{199, DiskSoft},
		{224, DiskSoft}, // it ends a little higher than it begins
		{225, DiskOK},
		{199, DiskSoft},
		{150, DiskSoft},
		{149, DiskHard},
		{174, DiskHard},
		{175, DiskSoft},
		{149, DiskHard},
		{100, DiskHard},
		{99, DiskFloor},
		{0, DiskFloor},
		{124, DiskFloor},
		{125, DiskHard},
		{-1, DiskOK},
		{170, DiskSoft},
	} {
		free = tt.free
		now = now.Add(time.Hour) // nothing shrinks fast
		if got, _, _ := d.look(); got != tt.want || d.current() != tt.want {
			t.Errorf("with %d bytes free: %v, want %v", tt.free, got, tt.want)
		}
	}
}

// TestFullDisk tells all nodes, and then one of three, that the disk is full: it takes
// neither proposals nor entries, the leadership goes, the group goes on, and the node
// catches up when there is room.
func TestFullDisk(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	if err := c.nodes[1].TransferLeader(t.Context(), 1, 3); err != nil {
		t.Fatal(err)
	}
	full := c.nodes[3]
	for id, n := range c.nodes {
		c.full[id].Store(true)
		c.eventually("the node sees it", func() bool { return n.disk.current() == DiskFloor })
	}
	c.eventually("nobody is better off", func() bool {
		return len(full.betterOff(full.condition())) == 0
	})
	if _, err := full.Propose(t.Context(), 1, []byte("b")); !errors.Is(err, ErrDiskFull) {
		t.Errorf("Propose at the full node = %v, want ErrDiskFull", err)
	}
	c.full[1].Store(false)
	c.full[2].Store(false)
	c.eventually("somebody else leads", func() bool {
		leader := full.replica(1).view.Load().LeaderNode
		return leader != 0 && leader != 3
	})
	c.eventually("the others have room", func() bool {
		return c.nodes[1].disk.current() == DiskOK && c.nodes[2].disk.current() == DiskOK
	})
	c.add(2, 1, "c")
	if err := full.Err(); err != nil {
		t.Error(err)
	}
	c.full[3].Store(false)
	c.eventually("node 3 catches up", func() bool {
		return slices.Equal(c.words(3, 1), []string{"a", "c"})
	})
}
