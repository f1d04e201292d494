package admin

import (
	"context"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// A Proposer proposes commands to groups and asks their state machines.
// [node.Node] is one.
type Proposer interface {
	Propose(ctx context.Context, id raftyard.GroupID, cmd []byte) (group.Result, error)
	Query(
		ctx context.Context, id raftyard.GroupID, c node.Consistency, query []byte,
	) ([]byte, error)
}

// DB returns what a [kv.Client] needs of a node.
func DB(p Proposer) kv.DB { return db{p} }

type db struct{ proposer Proposer }

// Propose has a command applied.
func (d db) Propose(
	ctx context.Context, id raftyard.GroupID, cmd []byte,
) (group.Result, error) {
	return d.proposer.Propose(ctx, id, cmd)
}

// Query asks a state machine.
func (d db) Query(
	ctx context.Context, id raftyard.GroupID, stale bool, query []byte,
) ([]byte, error) {
	c := node.Linearizable
	if stale {
		c = node.Stale
	}
	return d.proposer.Query(ctx, id, c, query)
}
