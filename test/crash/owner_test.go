//go:build unix

package crash

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/cluster"
)

// owner creates a group, changes it in every way while its writers write, deletes
// it, and begins again. Nobody else does that with this group.
func (c *child) owner(ctx context.Context, g *workGroup, dice *rand.Rand) {
	for ctx.Err() == nil {
		m := c.members[dice.IntN(len(c.members))]
		if !g.present {
			c.create(ctx, g, m, dice)
			continue
		}
		c.rest(ctx, g)
		switch n := dice.IntN(10); {
		case c.Calm:
			c.snapshot(ctx, g, m)
		case n < 2:
			c.destroy(ctx, g)
		case n < 7:
			c.move(ctx, g, m, dice)
		case n < 8:
			c.transfer(ctx, g, m, dice)
		default:
			c.snapshot(ctx, g, m)
		}
	}
}

// rest waits until the group has taken some writes, or for a while.
func (c *child) rest(ctx context.Context, g *workGroup) {
	until := g.acked.Load() + restAfter
	for range 30 {
		if g.acked.Load() >= until {
			return
		}
		cluster.Pause(ctx.Done(), childTick)
	}
}

// someVoters picks one to all nodes. Nodes of another child may be down, so those of
// this one are among them.
func (c *child) someVoters(dice *rand.Rand) []raftyard.NodeID {
	ids := slices.Clone(c.Run)
	most := 1 + dice.IntN(c.Nodes)
	for _, i := range dice.Perm(c.Nodes) {
		id := raftyard.NodeID(i + 1)
		if len(ids) < max(most, len(c.Run)) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (c *child) create(ctx context.Context, g *workGroup, m *member, dice *rand.Rand) {
	spec := node.Spec{
		ID: g.id, Kind: g.kind, Voters: c.someVoters(dice),
		SnapshotEntries: snapshotEntries, TrailingEntries: trailingEntries,
	}
	err := errors.New("not tried")
	// To create what exists as wanted is a success, so a creation without an
	// answer is repeated.
	for err != nil && ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, callLimit)
		err = c.try(opCreate, g.id, votersText(spec.Voters), func() error {
			_, err := m.node.CreateGroup(call, spec)
			return err
		})
		cancel()
	}
	g.busy.Lock()
	defer g.busy.Unlock()
	g.present = true
}

// destroy deletes the group while it is written to, until that is acknowledged,
// and waits for its writers.
func (c *child) destroy(ctx context.Context, g *workGroup) {
	err := errors.New("not tried")
	for i := 0; err != nil && ctx.Err() == nil; i++ {
		m := c.members[i%len(c.members)]
		call, cancel := context.WithTimeout(ctx, callLimit)
		err = c.try(opDestroy, g.id, "-", func() error { return m.node.DeleteGroup(call, g.id) })
		cancel()
	}
	g.busy.Lock()
	defer g.busy.Unlock()
	g.present = false
}

// move wants other members for the group; it does not wait until it has them.
func (c *child) move(ctx context.Context, g *workGroup, m *member, dice *rand.Rand) {
	voters := c.someVoters(dice)
	call, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	// Nothing is made of the answer but that the new members are decided, or may be.
	_ = c.try(opMembers, g.id, votersText(voters), func() error {
		_, err := m.node.SetMembers(call, g.id, node.Members{Voters: voters}, false)
		return err
	})
}

// transfer and snapshot may fail: they are there to disturb.
func (c *child) transfer(ctx context.Context, g *workGroup, m *member, dice *rand.Rand) {
	call, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_ = m.node.TransferLeader(call, g.id, c.members[dice.IntN(len(c.members))].id)
}

func (c *child) snapshot(ctx context.Context, g *workGroup, m *member) {
	call, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, _ = m.node.TakeSnapshot(call, g.id)
}

// cutter cuts one node after the other off for a while, for longer than the log
// reaches back: it then needs a snapshot.
func (c *child) cutter(ctx context.Context, dice *rand.Rand) {
	for ctx.Err() == nil {
		cluster.Pause(ctx.Done(), time.Duration(50+dice.IntN(100))*time.Millisecond)
		id := c.members[dice.IntN(len(c.members))].id
		c.network.Isolate(id)
		cluster.Pause(ctx.Done(), time.Duration(50+dice.IntN(200))*time.Millisecond)
		c.network.Rejoin(id)
	}
}
