package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
)

// whole reports whether a node's disk can be lost and nothing is under way: no member of
// any group is to be another, and all of them have all that is committed.
func (w *World) whole(id raftyard.NodeID) bool {
	if !w.dispensable(id) || slices.ContainsFunc(w.groups, (*groupInfo).moving) ||
		slices.ContainsFunc(w.members(), (*host).unready) {
		return false
	}
	for _, h := range w.members() {
		for i := range h.seen.Replicas {
			d := &h.seen.Replicas[i].State.Descriptor
			g := w.group(d.Group)
			if d.IsJoint() || d.Group != raftyard.SystemGroup &&
				(g == nil || !g.wished(d.Voters())) || !w.complete(d) {
				return false
			}
		}
	}
	return true
}

// complete reports whether a group has all its members, and all of them have all that is
// committed.
func (w *World) complete(d *group.Descriptor) bool {
	least, most := ^uint64(0), uint64(0)
	for _, m := range d.Members {
		r, ok := w.host(m.Node).replica(d.Group)
		if !ok || r.ID != m.ID || !r.Serving {
			return false
		}
		least, most = min(least, r.Commit), max(most, r.Commit)
	}
	return least == most
}

// made makes an electorate of descriptors, each given as the roles of nodes, of which node n
// has the replica n, and all replicas but those of some nodes that were wiped before.
func made(descriptors []map[raftyard.NodeID]group.Role, wiped ...raftyard.NodeID) electorate {
	var e electorate
	for _, roles := range descriptors {
		var d group.Descriptor
		for id := range raftyard.NodeID(9) {
			if role, ok := roles[id]; ok {
				d.Members = append(d.Members, group.Member{
					ID: raftyard.ReplicaID(id), Node: id, Role: role,
				})
			}
		}
		e.descriptors = append(e.descriptors, d)
	}
	for id := range raftyard.NodeID(9) {
		r := keptReplica{id: raftyard.ReplicaID(id), node: id, first: 1, last: 10}
		if slices.Contains(wiped, id) {
			r.id += 100 // what it has instead
		}
		e.kept = append(e.kept, r)
	}
	return e
}

// with gives some nodes a role each.
func with(role group.Role, ids ...raftyard.NodeID) map[raftyard.NodeID]group.Role {
	roles := make(map[raftyard.NodeID]group.Role)
	for _, id := range ids {
		roles[id] = role
	}
	return roles
}

// and gives more nodes another role.
func and(roles map[raftyard.NodeID]group.Role, role group.Role, ids ...raftyard.NodeID,
) map[raftyard.NodeID]group.Role {
	for _, id := range ids {
		roles[id] = role
	}
	return roles
}

// TestSparesWhoIsNotNeeded: of each set of voters that may have to decide a majority must
// keep its disk, and that is enough.
func TestSparesWhoIsNotNeeded(t *testing.T) {
	type roles = []map[raftyard.NodeID]group.Role
	joint := and(and(with(group.Voter, 3), group.Outgoing, 1, 2), group.Incoming, 4, 5)
	for name, tc := range map[string]struct {
		e      electorate
		spared []raftyard.NodeID // of nodes 1 to 6, those whose disks can be lost
	}{
		"nobody":    {made(nil), ids(1, 2, 3, 4, 5, 6)},
		"alone":     {made(roles{with(group.Voter, 1)}), ids(2, 3, 4, 5, 6)},
		"of two":    {made(roles{with(group.Voter, 1, 2)}), ids(3, 4, 5, 6)},
		"of three":  {made(roles{with(group.Voter, 1, 2, 3)}), ids(1, 2, 3, 4, 5, 6)},
		"in a move": {made(roles{joint}), ids(1, 2, 3, 4, 5, 6)},
		"joint with two": {
			made(roles{and(with(group.Outgoing, 1, 2, 3), group.Incoming, 4, 5)}),
			ids(1, 2, 3, 6),
		},
		"demoted from two": {
			made(roles{and(with(group.Demoting, 1, 2), group.Incoming, 4, 5, 6)}),
			ids(3, 4, 5, 6),
		},
		"two descriptors": { // who is behind may be elected by the older one's voters
			made(roles{with(group.Voter, 1, 2, 3), with(group.Voter, 1, 2)}), ids(3, 4, 5, 6),
		},
		"about to be promoted": {
			made(roles{and(with(group.Voter, 1), group.Learner, 2)}), ids(3, 4, 5, 6),
		},
		"promoted to three": {
			made(roles{and(with(group.Voter, 1, 2), group.Learner, 3)}), ids(3, 4, 5, 6),
		},
		"one was wiped": {made(roles{with(group.Voter, 1, 2, 3)}, 3), ids(3, 4, 5, 6)},
		"one of five was wiped": {
			made(roles{with(group.Voter, 1, 2, 3, 4, 5)}, 5), ids(1, 2, 3, 4, 5, 6),
		},
		"two of five were wiped": {
			made(roles{with(group.Voter, 1, 2, 3, 4, 5)}, 4, 5), ids(4, 5, 6),
		},
	} {
		t.Run(name, func(t *testing.T) { wantSpared(t, &tc.e, tc.spared) })
	}
}

func ids(of ...raftyard.NodeID) []raftyard.NodeID { return of }

func wantSpared(t *testing.T, e *electorate, want []raftyard.NodeID) {
	t.Helper()
	var got []raftyard.NodeID
	for id := raftyard.NodeID(1); id <= 6; id++ {
		if e.spares(id) {
			got = append(got, id)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the disks of nodes %v can be lost, want those of %v", got, want)
	}
}

// TestSparesWhoIsWanted: a majority of those who are to become voters must be there, too.
func TestSparesWhoIsWanted(t *testing.T) {
	e := made([]map[raftyard.NodeID]group.Role{with(group.Voter, 1, 2, 3)})
	e.wishes = [][]raftyard.NodeID{{1, 2, 3}, {3, 4, 5}}
	wantSpared(t, &e, ids(1, 2, 3, 4, 5, 6))
	e.wishes = append(e.wishes, ids(4, 5))
	wantSpared(t, &e, ids(1, 2, 3, 6))
}

// TestSparesTheState: replicas with nothing but a log need a state that reaches it.
func TestSparesTheState(t *testing.T) {
	e := made([]map[raftyard.NodeID]group.Role{with(group.Voter, 1, 2, 3)})
	e.kept = e.kept[1:4]
	e.kept[2].stateless, e.kept[2].first = true, 8
	wantSpared(t, &e, ids(1, 2, 3, 4, 5, 6))
	e.kept[1].last = 6 // and needs what is missing in the log
	wantSpared(t, &e, ids(2, 3, 4, 5, 6))
	e.kept[2].first = 1
	wantSpared(t, &e, ids(1, 2, 3, 4, 5, 6))
}

// TestSpares: a disk on which a group is about to begin is spared, and no other.
func TestSpares(t *testing.T) {
	s := Start(t, Config{Seed: 6, Nodes: 4, Groups: 1})
	spared := func() (ids int) {
		for _, h := range s.w.hosts {
			if !s.w.dispensable(h.id) {
				ids |= 1 << h.id
			}
		}
		return ids
	}
	s.Until("every node can be done without", func() bool { return spared() == 0 })
	g := &groupInfo{id: 9, seed: 2, created: true, wish: node.Members{Voters: ids(1, 2, 3)}}
	s.w.groups = append(s.w.groups, g)
	if got := spared(); got != 1<<2 {
		t.Errorf("while a group is to begin on node 2 those are spared: %b", got)
	}
	g.contests = 1
	if got := spared(); got != 1<<1|1<<2|1<<3|1<<4 {
		t.Errorf("while nobody knows where a group begins those are spared: %b", got)
	}
	*g = groupInfo{id: 10, gone: true}
	if got := spared(); got != 0 {
		t.Errorf("when it is gone those are spared: %b", got)
	}
}

// TestSparesInAMove: a node can be wiped while the group that it votes in moves, whatever
// was asked before, as long as none of what may come of that needs it.
func TestSparesInAMove(t *testing.T) {
	s := Start(t, Config{Seed: 7, Nodes: 5, Groups: 1})
	s.Until("all is well", func() bool { return s.w.whole(1) })
	g := s.w.group(1)
	if !g.wished(membersOn(g.wish.Voters)) || len(g.wish.Voters) != 3 {
		t.Fatalf("the group has the voters %v", g.wish.Voters)
	}
	of := slices.Clone(g.wish.Voters)
	if _, err := s.Propose(of[0], 1, aPut()); err != nil {
		t.Fatal(err)
	}
	g.asks(node.Members{Voters: of[:2]})
	g.asks(node.Members{Voters: ids(1, 2, 3, 4, 5)})
	if s.w.dispensable(of[0]) || s.w.dispensable(of[1]) || !s.w.dispensable(of[2]) {
		t.Errorf("before the group is what was asked last, %v of %v can be lost",
			slices.DeleteFunc(slices.Clone(of), func(id raftyard.NodeID) bool {
				return !s.w.dispensable(id)
			}), of)
	}
	s.Inject(Fault{Kind: Members, Group: 1, N: 31})
	s.Inject(Fault{Kind: Wipe, Node: of[2], For: time.Millisecond})
	s.Until("it is wiped in the move", func() bool { return s.w.counts.Amid == 1 })
	s.Until("all is well again", func() bool { return s.w.whole(of[2]) })
	if len(g.tried) > 0 {
		t.Errorf("nothing moves, and the members may still become %v", g.tried)
	}
}

func membersOn(nodes []raftyard.NodeID) (members []group.Member) {
	for _, id := range nodes {
		members = append(members, group.Member{Node: id})
	}
	return members
}
