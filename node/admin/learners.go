package admin

import (
	"context"
	"net/http"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
)

func (h *Handler) attachLearner(c *call) error {
	return c.changeLearner(h.cfg.Node.AddLearner)
}

func (h *Handler) detachLearner(c *call) error {
	return c.changeLearner(h.cfg.Node.RemoveLearner)
}

// changeLearner attaches or detaches the node in the path, and answers how the group
// is then.
func (c *call) changeLearner(change func(
	context.Context, raftyard.GroupID, raftyard.NodeID,
) (node.GroupStatus, error),
) error {
	id, err := c.userGroupID()
	if err != nil {
		return err
	}
	on, err := c.nodeID("node")
	if err != nil {
		return err
	}
	status, err := change(c.r.Context(), id, on)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, status)
}
