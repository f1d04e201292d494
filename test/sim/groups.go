package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// groupInfo is what the simulation knows of a group that it has asked for.
type groupInfo struct {
	id          raftyard.GroupID
	incarnation raftyard.Incarnation
	seed        raftyard.NodeID // where it begins
	generation  int             // counts its creations
	created     bool            // the registry has it
	dying       bool            // it is being deleted, or created again
	gone        bool            // it was deleted, and is not to come again
	own         bool            // it comes and goes
	busy        int             // so many change its members
	unsure      bool            // nobody knows which members are wanted
	contests    int             // so many create and delete it
	stillborn   bool            // the directory in which it was to begin is lost
	forced      bool            // one that came before was deleted by force
	asked       int             // so often somebody has asked for other members
	forget      bool            // it was deleted, and is to be forgotten
	doubted     bool            // a creation of which nobody knows may come to pass yet

	wish  node.Members        // what its members were last asked to be
	tried [][]raftyard.NodeID // its voters, before that, since it was as it should be
	last  map[string]string   // a value that each key has had
}

// moving reports whether the group is about to be another, or elsewhere.
func (g *groupInfo) moving() bool {
	return !g.created && !g.gone || g.dying || g.busy > 0 || g.unsure
}

// settled reports whether nobody is about to create or delete the group, or to change
// its members.
func (g *groupInfo) settled() bool { return (g.created || g.gone) && !g.dying && g.busy == 0 }

// begin says that the group is there.
func (g *groupInfo) begin() {
	g.created, g.dying, g.gone, g.unsure = true, false, false, g.busy > 0
}

// wished reports whether the voters are those that the group was asked to have.
func (g *groupInfo) wished(voters []group.Member) bool {
	nodes := make([]raftyard.NodeID, 0, len(voters))
	for _, m := range voters {
		nodes = append(nodes, m.Node)
	}
	slices.Sort(nodes)
	return slices.Equal(nodes, g.wish.Voters)
}

// without takes a node whose disk is lost out of the members that a group shall have.
func (w *World) without(m node.Members) node.Members {
	lost := func(id raftyard.NodeID) bool {
		return w.host(id).isGone() || w.host(id) == w.leaver
	}
	m.Voters = slices.DeleteFunc(slices.Clone(m.Voters), lost)
	m.Learners = slices.DeleteFunc(slices.Clone(m.Learners), lost)
	return m
}

// plan makes the groups that shall be.
func (w *World) plan() {
	d := newDice(w.cfg.Seed, streamSetup+100)
	for i := range w.setup.groups {
		g := &groupInfo{id: raftyard.GroupID(i + 1), last: make(map[string]string)}
		g.wish = w.someMembers(d.Uint64(), 0)
		w.groups = append(w.groups, g)
		w.clients.Go(fmt.Sprintf("create group %d", g.id), func() { w.create(g) })
	}
}

// someMembers returns three voters, or what the set bits says if it fits.
func (w *World) someMembers(bits, learners uint64) (m node.Members) {
	in := w.members()
	n := len(in)
	first := int(bits % uint64(n))
	for i := range min(3, n) {
		m.Voters = append(m.Voters, in[(first+i)%n].id)
	}
	for _, h := range in {
		if learners&bit(h.id) != 0 && !slices.Contains(m.Voters, h.id) {
			m.Learners = append(m.Learners, h.id)
		}
	}
	slices.Sort(m.Voters)
	return m
}

// create has a group created, for as long as it takes. One that was given a seed whose
// disk is lost, as nobody had noticed yet, never begins: it makes room for another.
func (w *World) create(g *groupInfo) {
	for w.decide(g); w.neverBegins(g); w.decide(g) {
		w.remove(g, false)
	}
	g.begin()
	w.log(0, "created", fmt.Sprintf("group %d as %v with %v", g.id, g.incarnation, g.wish))
	w.wanted(g)
}

// decide has the registry decide that there is a group, and learns what it is.
func (w *World) decide(g *groupInfo) {
	for {
		w.stay(g)
		spec := w.spec(g, w.staying(g.wish))
		err := w.admin(func(ctx context.Context, n *node.Node) error {
			_, err := n.CreateGroup(ctx, spec)
			return err
		})
		// Since somebody has asked for it, a member may have had to leave the cluster, or
		// other members may be wanted: what is wanted is settled after the last fault.
		other := (g.doubted || w.leaver != nil) && errors.Is(err, node.ErrGroupExists)
		if (err == nil || other) && w.learn(g) {
			return
		}
		g.doubted = g.doubted || !node.NotApplied(err)
		w.clients.Sleep(context.Background(), 50*time.Millisecond)
	}
}

// spec says what a group is when it begins.
func (w *World) spec(g *groupInfo, m node.Members) node.Spec {
	return node.Spec{
		ID: g.id, Kind: w.kindOf(g.id), Voters: m.Voters, Learners: m.Learners,
		SnapshotEntries: w.setup.snapshotEntries, TrailingEntries: w.setup.trailing,
	}
}

// learn asks the registry which incarnation a group has, and where it begins.
func (w *World) learn(g *groupInfo) bool {
	rec, err := w.record(g)
	if err == nil {
		g.learned(&rec)
	}
	return err == nil
}

// wanted tells the checker where the group shall be.
func (w *World) wanted(g *groupInfo) {
	w.check.Wanted(g.id, check.Wish{
		Incarnation: g.incarnation, Voters: g.wish.Voters, Learners: g.wish.Learners,
	})
}

// admin does something on some node that is up, from a process of the clients'.
func (w *World) admin(fn func(context.Context, *node.Node) error) error {
	c := &Client{w: w, dice: w.luck}
	return c.Do("administer", fn)
}

// setMembers asks for other members of a group, once. Which are wanted after that is
// known if it was alone, and has succeeded: what was asked before is then too late.
func (w *World) setMembers(g *groupInfo, m node.Members) error {
	g.asks(m)
	err := w.admin(func(ctx context.Context, n *node.Node) error {
		_, err := n.SetMembers(ctx, g.id, m, false)
		return err
	})
	g.unsure = g.unsure && (err != nil || g.busy > 1)
	w.log(0, "members", fmt.Sprintf("of group %d: %v: %v", g.id, m, err))
	return err
}

// epoch returns the newest epoch of a group that any of its replicas is at.
func (w *World) epoch(g *groupInfo) (epoch uint64) {
	for _, h := range w.hosts {
		for i := range h.seen.Replicas {
			r := &h.seen.Replicas[i]
			if r.Group == g.id && r.Incarnation == g.incarnation {
				epoch = max(epoch, r.State.Descriptor.Epoch)
			}
		}
	}
	return epoch
}

// settle has every group get the members that it was last asked to have, after the
// last fault.
func (w *World) settle() (done func() bool) {
	left := 1
	w.clients.Go("settle nodes", func() {
		defer func() { left-- }()
		w.settleNodes()
	})
	for _, g := range w.groups {
		left++
		w.clients.Go(fmt.Sprintf("settle group %d", g.id), func() {
			defer func() { left-- }()
			w.await(g.settled)
			if g.id == contested || g.gone && g.doubted {
				w.reconsider(g)
			}
			w.reviveStillborn(g)
			w.stay(g)
			for !g.gone && w.setMembers(g, w.without(g.wish)) != nil {
				w.clients.Sleep(context.Background(), 100*time.Millisecond)
				// A change that cannot be reached any more, because of a disk that is
				// lost, is replaced by whoever knows how far it has come.
				g.wish.ExpectEpoch = w.epoch(g)
				w.reviveStillborn(g)
			}
			if !g.gone {
				w.wanted(g)
			}
			w.settleForgotten(g)
		})
	}
	return func() bool { return left == 0 }
}
