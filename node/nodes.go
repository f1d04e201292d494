package node

import (
	"context"
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// A NodeSpec says that a node belongs to the cluster, and where it is found. See
// [Node.PutNode].
type NodeSpec struct {
	ID raftyard.NodeID `json:"id"`
	// Peer is the host:port at which other nodes find it.
	Peer string `json:"peer"`
	// HTTP is the host:port of its HTTP API, told to users; it may be empty.
	HTTP string `json:"http,omitempty"`
	// Labels are told to users, and looked at when the replicas of a node that leaves
	// are spread over others.
	Labels map[string]string `json:"labels,omitempty"`
}

// PutNode lets a node join the cluster, or tells where a node is that has moved. It
// reports whether the node is new. The node may be started before or after that: it
// joins by itself once it is there. When the node starts, what its own configuration
// says of it takes the place of this.
//
// An id is that of one node for ever: for one that was removed the error is
// [ErrNodeRemoved].
func (n *Node) PutNode(ctx context.Context, spec NodeSpec) (created bool, err error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	if err = n.mustBelong(); err != nil {
		return false, err
	}
	res, err := n.command(ctx, registry.EncodeSetNode(registry.SetNode{Node: registry.Node{
		ID: spec.ID, Peer: spec.Peer, HTTP: spec.HTTP, Labels: spec.Labels,
	}}))
	if err != nil {
		return false, err
	}
	return res.Code == registry.Created, nodeResult(spec.ID, res)
}

// mustBelong returns why this node can ask nothing of the cluster.
func (n *Node) mustBelong() error {
	if err := n.standing(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return nil
}

// nodeResult makes an error of the result of a command about a node.
func nodeResult(id raftyard.NodeID, res registry.Result) error {
	switch {
	case res.Code == registry.OK || res.Code == registry.Created:
		return nil
	case res.Code == registry.NotFound:
		return fmt.Errorf("%w: node %d", ErrNodeNotFound, id)
	case res.Node.State == registry.NodeRemoved:
		return fmt.Errorf("%w: node %d: its id cannot be used again", ErrNodeRemoved, id)
	default:
		return fmt.Errorf("%w: node %d: %s", ErrInvalid, id, res.Detail)
	}
}
