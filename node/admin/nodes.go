package admin

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

// nodeListing is the answer to a list of nodes.
type nodeListing struct {
	Nodes []node.NodeStatus `json:"nodes"`
}

func (h *Handler) listNodes(c *call) error {
	nodes := h.cfg.Node.Nodes(c.r.Context())
	if nodes == nil {
		nodes = []node.NodeStatus{}
	}
	return c.send(http.StatusOK, nodeListing{Nodes: nodes})
}

// nodeID returns the id of a node in the path, where it is called name.
func (c *call) nodeID(name string) (raftyard.NodeID, error) {
	text := c.r.PathValue(name)
	id, err := raftyard.ParseNodeID(text)
	return id, badID(text, err)
}

func (h *Handler) getNode(c *call) error {
	id, err := c.nodeID("id")
	if err != nil {
		return err
	}
	status, err := h.cfg.Node.NodeStatus(c.r.Context(), id)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, status)
}

// putNodeDoc answers that a node has joined, or is reached elsewhere.
type putNodeDoc struct {
	node.NodeStatus
	Created bool `json:"created"`
}

func (h *Handler) putNode(c *call) error {
	id, err := c.nodeID("id")
	if err != nil {
		return err
	}
	var doc client.NodeSpec
	err = c.json(&doc, maxJSONBytes)
	if err != nil {
		return err
	}
	if doc.Peer == "" {
		return newProblem(client.CodeInvalid,
			"peer is missing, want the host:port at which other nodes reach it")
	}
	err = checkAddress("peer", doc.Peer)
	if err == nil && doc.HTTP != "" {
		err = checkAddress("http", doc.HTTP)
	}
	if err != nil {
		return err
	}
	spec := node.NodeSpec{ID: id, Peer: doc.Peer, HTTP: doc.HTTP, Labels: doc.Labels}
	created, err := h.cfg.Node.PutNode(c.r.Context(), spec)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		c.w.Header().Set("Location", "/v1/nodes/"+id.String())
	}
	return c.send(status, putNodeDoc{NodeStatus: h.storedNode(c, spec), Created: created})
}

// storedNode returns the node that spec is about. It is there, so that not being
// able to read it back is no reason to fail.
func (h *Handler) storedNode(c *call, spec node.NodeSpec) node.NodeStatus {
	status, err := h.cfg.Node.NodeStatus(c.r.Context(), spec.ID)
	if err == nil {
		return status
	}
	h.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelDebug, "node not read back",
		slog.Uint64("node", uint64(spec.ID)), slog.Any("error", err))
	return node.NodeStatus{ID: spec.ID, Peer: spec.Peer, HTTP: spec.HTTP, Labels: spec.Labels}
}

func (h *Handler) drainNode(c *call) error {
	return c.changeNode(h.cfg.Node.DrainNode)
}

func (h *Handler) undrainNode(c *call) error {
	return c.changeNode(h.cfg.Node.UndrainNode)
}

func (h *Handler) removeNode(c *call) error {
	force, err := c.flag("force")
	if err != nil {
		return err
	}
	return c.changeNode(func(
		ctx context.Context, id raftyard.NodeID,
	) (node.NodeStatus, error) {
		return h.cfg.Node.RemoveNode(ctx, id, force)
	})
}

// changeNode has the node in the path changed, and answers how it is then.
func (c *call) changeNode(
	change func(context.Context, raftyard.NodeID) (node.NodeStatus, error),
) error {
	id, err := c.nodeID("id")
	if err != nil {
		return err
	}
	status, err := change(c.r.Context(), id)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, status)
}
