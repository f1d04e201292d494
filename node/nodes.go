package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// A NodeSpec says that a node belongs to the cluster, and where it is found. See
// [Node.PutNode].
type NodeSpec struct {
	ID raftyard.NodeID `json:"id"` // from 1 to [raftyard.MaxNodeID]
	// Peer is the host:port at which other nodes find it.
	Peer string `json:"peer"`
	// HTTP is the host:port of its HTTP API, told to users; it may be empty, and that of
	// several nodes.
	HTTP string `json:"http,omitempty"`
	// Labels are told to users, and looked at when the replicas of a node that leaves
	// are spread over others.
	Labels map[string]string `json:"labels,omitempty"`
}

// PutNode lets a node join the cluster, or tells where a node is that has moved. It
// reports whether the node is new. The node may be started before or after that: it
// joins by itself once it is there. When the node starts, what its own configuration
// says of it takes the place of this; what that does not say stays.
//
// An id is that of one node for ever: for one that was removed the error is
// [ErrNodeRemoved]. For a peer address that another node has, for whatever, it is
// [ErrInvalid], unless the node moves, and the other one is not live. HTTP addresses may be
// those of several nodes.
func (n *Node) PutNode(ctx context.Context, spec NodeSpec) (created bool, err error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	if err = spec.ID.Check(); err != nil {
		return false, fmt.Errorf("%w: node %d: %w", ErrInvalid, spec.ID, err)
	}
	if err = n.mustBelong(); err != nil {
		return false, err
	}
	if err = n.mustBeFree(&spec); err != nil {
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

// mustBeFree returns why a node cannot have the addresses, or nil: nobody else is to be found
// at a peer address. A node that moves may be quicker than the one that has moved away from
// there: so it may have the address of one that is not live, and keep what it has.
func (n *Node) mustBeFree(spec *NodeSpec) error {
	own, known := n.registry.Node(spec.ID)
	if known && own.Peer == spec.Peer && own.HTTP == spec.HTTP {
		return nil
	}
	live := n.liveNodes()
	var others []Peer
	for _, o := range n.registry.Nodes() {
		if !known || live[o.ID] {
			others = append(others, Peer{ID: o.ID, Addr: o.Peer, HTTP: o.HTTP})
		}
	}
	p := Peer{ID: spec.ID, Addr: spec.Peer, HTTP: spec.HTTP}
	if err := p.clash(others); err != nil {
		return fmt.Errorf("%w: node %d: %w; if that one has moved, tell its new address first",
			ErrInvalid, spec.ID, err)
	}
	return nil
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

// RemoveNode takes a node out of the cluster for ever: its id is spent. A node that
// groups have members on is refused, with [ErrNodeInUse], unless it is drained. When
// RemoveNode returns without an error it is decided that the node leaves; it goes on by
// itself, and the status says how far it is: every group gets another member in the place
// of the one there, and at last the node is removed. [Node.DrainNode] and
// [Node.UndrainNode] take the decision back until then. Removing a node again is a
// success.
//
// With force a node need not be drained that is not live, and is thought to be dead for
// ever; and groups that find no other node go on with fewer voters, if the node was
// drained also when it is live. A group that has its only voter there keeps the node from
// being removed all the same, until it is deleted.
func (n *Node) RemoveNode(
	ctx context.Context, id raftyard.NodeID, force bool,
) (NodeStatus, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	if err := n.mustBelong(); err != nil {
		return NodeStatus{}, err
	}
	if err := n.registerMembers(ctx, []raftyard.NodeID{id}); err != nil {
		return NodeStatus{}, err
	}
	var rec registry.Node
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(reg *registry.Registry) error {
		var ok bool
		if rec, ok = reg.Node(id); !ok {
			return fmt.Errorf("%w: node %d", ErrNodeNotFound, id)
		}
		return nil
	})
	if err == nil && rec.State != registry.NodeRemoved {
		err = n.beginLeave(ctx, &rec, force)
	}
	if err != nil {
		return NodeStatus{}, err
	}
	return n.NodeStatus(ctx, id)
}

// beginLeave has the registry decide that the node leaves.
func (n *Node) beginLeave(ctx context.Context, rec *registry.Node, force bool) error {
	if !slices.ContainsFunc(n.registry.Nodes(), func(other registry.Node) bool {
		return other.ID != rec.ID && other.State < registry.NodeLeaving
	}) {
		return fmt.Errorf("%w: node %d is the last one", ErrInvalid, rec.ID)
	}
	if rec.State == registry.NodeActive {
		if err := n.mayLeave(rec, force); err != nil {
			return err
		}
		if _, err := n.setNodeState(ctx, rec.ID, registry.NodeDrained); err != nil {
			return err
		}
	}
	res, err := n.command(ctx, registry.EncodeSetNodeState(registry.SetNodeState{
		ID: rec.ID, State: registry.NodeLeaving, Forced: force,
	}))
	if err != nil {
		return err
	}
	return nodeResult(rec.ID, res)
}

// mayLeave reports why a node that is not drained cannot leave.
func (n *Node) mayLeave(rec *registry.Node, force bool) error {
	if force {
		if n.liveNodes()[rec.ID] {
			return fmt.Errorf("%w: node %d is live: drain it first", ErrNodeInUse, rec.ID)
		}
		return nil
	}
	var ids []raftyard.GroupID
	for g := range n.registry.All() {
		if wants(&g, rec.ID) {
			ids = append(ids, g.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("%w: node %d has members of %s (%s): drain it first",
		ErrNodeInUse, rec.ID, amount(len(ids), "group", "groups"), nameSome(ids))
}
