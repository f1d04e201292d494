package admin

import (
	"context"
	"net/http"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

// Menders bring replicas out of quarantine.
type Menders interface {
	RetryReplica(
		ctx context.Context, id raftyard.GroupID, at raftyard.NodeID,
	) (node.ReplicaStatus, error)
	RebuildReplica(
		ctx context.Context, id raftyard.GroupID, at raftyard.NodeID,
	) (node.ReplicaStatus, error)
	SkipEntry(ctx context.Context, id raftyard.GroupID, s node.Skip) (node.Skipped, error)
}

func (h *Handler) quarantineRoutes() {
	const one = "/v1/groups/{id}"
	h.handle(http.MethodPost, &route{
		pattern: one + "/replicas/{node}/retry", serve: h.retryReplica, changes: true,
		does: "open a replica in quarantine again",
	})
	h.handle(http.MethodPost, &route{
		pattern: one + "/replicas/{node}/rebuild", serve: h.rebuildReplica, changes: true,
		does: "have a replica take over the state of another",
	})
	h.handle(http.MethodPost, &route{
		pattern: one + "/skip", serve: h.skipEntry, changes: true,
		does: "skip an entry at which all state machines fail",
	})
}

func (h *Handler) retryReplica(c *call) error { return c.mend(h.cfg.Node.RetryReplica) }

func (h *Handler) rebuildReplica(c *call) error { return c.mend(h.cfg.Node.RebuildReplica) }

// mend does something with the replica in the path, and answers how it is then.
func (c *call) mend(do func(
	context.Context, raftyard.GroupID, raftyard.NodeID,
) (node.ReplicaStatus, error),
) error {
	id, err := c.userGroupID()
	if err != nil {
		return err
	}
	at, err := c.nodeID("node")
	if err != nil {
		return err
	}
	status, err := do(c.r.Context(), id, at)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, status)
}

func (h *Handler) skipEntry(c *call) error {
	id, err := c.userGroupID()
	if err != nil {
		return err
	}
	var doc node.Skip
	err = c.json(&doc, maxJSONBytes)
	switch {
	case err != nil:
		return err
	case doc.Index == 0:
		return newProblem(client.CodeInvalid, "index is missing, want that of the entry")
	case doc.Confirm == "":
		return newProblem(client.CodeInvalid,
			"confirm is missing, want the incarnation of the group")
	}
	done, err := h.cfg.Node.SkipEntry(c.r.Context(), id, doc)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, done)
}
