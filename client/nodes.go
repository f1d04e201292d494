package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/raftyard/raftyard"
)

// Nodes returns the nodes of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	list, err := get[Nodes](ctx, c, "/v1/nodes", nil)
	if err != nil {
		return nil, err
	}
	return list.Nodes, nil
}

// Node returns one node.
func (c *Client) Node(ctx context.Context, id raftyard.NodeID) (*Node, error) {
	return get[Node](ctx, c, nodePath(id), nil)
}

// PutNode has a node join the cluster, or changes where it is reached. The node may be
// started before or after. The same again is no error.
func (c *Client) PutNode(
	ctx context.Context, id raftyard.NodeID, spec NodeSpec,
) (*PutNode, error) {
	req, err := request{method: http.MethodPut, path: nodePath(id)}.withJSON(spec)
	if err != nil {
		return nil, err
	}
	return call[PutNode](ctx, c, req)
}

// DrainNode has a node lead no group any more, and returns when it leads none that
// another node could lead, or at the end of the time. It stays a member of its groups.
func (c *Client) DrainNode(ctx context.Context, id raftyard.NodeID) (*Node, error) {
	return c.nodeAction(ctx, id, "/drain")
}

// UndrainNode lets a node lead again, also one that was about to leave.
func (c *Client) UndrainNode(ctx context.Context, id raftyard.NodeID) (*Node, error) {
	return c.nodeAction(ctx, id, "/undrain")
}

func (c *Client) nodeAction(
	ctx context.Context, id raftyard.NodeID, action string,
) (*Node, error) {
	return call[Node](ctx, c, request{method: http.MethodPost, path: nodePath(id) + action})
}

// RemoveNode has a node leave the cluster for ever: its id is spent. The node must be
// drained, [CodeNodeInUse], and is leaving when it is decided: every group gets another
// member in the place of the one there, then the node is removed. force is for a node
// that is dead for ever. Repeating it is no error.
func (c *Client) RemoveNode(
	ctx context.Context, id raftyard.NodeID, force bool,
) (*Node, error) {
	req := request{method: http.MethodDelete, path: nodePath(id)}
	if force {
		req.query = url.Values{"force": {"true"}}
	}
	return call[Node](ctx, c, req)
}

func nodePath(id raftyard.NodeID) string { return "/v1/nodes/" + id.String() }
