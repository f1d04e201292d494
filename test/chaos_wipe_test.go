//go:build unix

package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

const (
	// safeVoters is how many voters a group must have of which one may lose its disk.
	safeVoters = 3
	// wholeLimit bounds how long a wipe waits for all groups to have all their members.
	wholeLimit = 15 * time.Second
)

// wipe replaces the disk of a node. What was acknowledged must survive that as long as a
// majority of each group's members keep theirs; so one node at a time loses its disk, at a
// moment at which nothing else goes on and every group has all its members. That it comes
// back is in the midst of everything again.
func (x *chaos) wipe(dice *rand.Rand) string {
	n := x.some(dice, 1)[0]
	x.still.Lock()
	defer x.still.Unlock()
	x.strengthen(n)
	ctx, cancel := context.WithTimeout(x.calm, wholeLimit)
	defer cancel()
	var why error
	err := cluster.Poll(ctx, func() (bool, error) {
		why = x.mayWipe(ctx, n)
		return why == nil, nil
	})
	if err != nil {
		return fmt.Sprintf("node %d, given up: %v", n.ID(), why)
	}
	n.Kill()
	n.Wipe()
	n.Start()
	return fmt.Sprintf("node %d", n.ID())
}

// strengthen gives groups more voters that have fewer than it takes to lose a node's.
func (x *chaos) strengthen(n *cluster.Node) {
	for _, g := range x.groups {
		got, err := n.Group(x.calm, g)
		if err != nil || !slices.Contains(got.Voters, n.ID()) || len(got.Voters) >= safeVoters {
			continue
		}
		voters := slices.Clone(got.Voters)
		for _, other := range ids(x.c.Nodes()) {
			if len(voters) < safeVoters && !slices.Contains(voters, other) {
				voters = append(voters, other)
			}
		}
		begun := time.Now()
		a := n.SetMembers(x.calm, g, client.Members{Voters: voters}, operatorTimeout)
		x.done("members", begun, a, "group %d to %v, before a disk is replaced", g, voters)
	}
}

// mayWipe returns what speaks against losing a node's disk: all nodes must agree on every
// group, each group must have all its members and be in want of nothing, and those with a
// voter on the node must have enough of them.
func (x *chaos) mayWipe(ctx context.Context, n *cluster.Node) error {
	all := append([]raftyard.GroupID{raftyard.SystemGroup}, x.groups...)
	err := eachGroup(all, 8, func(_ int, g raftyard.GroupID) error {
		return x.isWhole(ctx, g, n)
	})
	if err != nil {
		return err
	}
	var page client.Groups
	query := url.Values{"node": {n.ID().String()}, "limit": {"1000"}}
	if err = n.Get(ctx, "/v1/groups", query, &page); err != nil {
		return err
	}
	for i := range page.Groups {
		if g := &page.Groups[i]; !slices.Contains(x.groups, g.ID) {
			return fmt.Errorf("group %d, which was to be deleted, has voters %v", g.ID, g.Voters)
		}
	}
	return nil
}

// isWhole returns what a group lacks, as each node sees it.
func (x *chaos) isWhole(ctx context.Context, g raftyard.GroupID, n *cluster.Node) error {
	epoch := uint64(0)
	for _, asked := range x.c.Nodes() {
		got, err := asked.Group(ctx, g)
		if err == nil {
			err = lacks(&got, n.ID())
		}
		if err == nil && epoch != 0 && got.Epoch != epoch {
			err = fmt.Errorf("it is at epoch %d, and at %d", got.Epoch, epoch)
		}
		if err != nil {
			return fmt.Errorf("node %d: group %d: %w", asked.ID(), g, err)
		}
		epoch = got.Epoch
	}
	return nil
}

// lacks returns what a group lacks of which a node is to lose its disk.
func lacks(g *client.Group, n raftyard.NodeID) error {
	voters := 0
	for _, m := range g.Members {
		if m.Role == "voter" {
			voters++
		}
	}
	for i := range g.Replicas {
		if r := &g.Replicas[i]; r.Error != "" || r.Fault != "" {
			return fmt.Errorf("node %d: %w", r.Node, errors.New(r.Error+r.Fault))
		}
	}
	switch {
	case g.Leader == 0 || len(g.Problems) > 0:
		return fmt.Errorf("it is led by node %d, and has the problems %v", g.Leader, g.Problems)
	case voters != len(g.Voters) || len(g.Members) != len(g.Voters)+len(g.Learners):
		return fmt.Errorf("it has %v, and wants %v and %v", g.Members, g.Voters, g.Learners)
	case slices.Contains(g.Voters, n) && voters < safeVoters:
		return fmt.Errorf("it has only the voters %v", g.Voters)
	}
	return nil
}
