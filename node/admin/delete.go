package admin

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

func (h *Handler) deleteGroup(c *call) error {
	id, err := c.userGroupID()
	if err != nil {
		return err
	}
	force, err := c.flag("force")
	if err != nil {
		return err
	}
	confirm, confirmed, err := c.param("confirm")
	switch {
	case err != nil:
		return err
	case force:
		return h.forceDelete(c, id, confirm)
	case confirmed:
		return newProblem(client.CodeInvalid, "confirm goes with force=true, which is not there")
	}
	return sendDeleted(c, id, h.cfg.Node.DeleteGroup(c.r.Context(), id))
}

// sendDeleted answers a deletion that has ended with err. It has succeeded when it is
// decided; that some of the members are not known to have stopped is for the caller to see.
func sendDeleted(c *call, id raftyard.GroupID, err error) error {
	answer := client.Deleted{Group: id, Deleted: true}
	switch {
	case errors.Is(err, node.ErrNotReached) && !errors.Is(err, node.ErrUnknownOutcome):
		answer.Pending = detail(err, node.ErrNotReached)
	case err != nil:
		return err
	}
	return c.send(http.StatusOK, answer)
}

// forceDelete deletes a group that may have members which nobody can ask. Who wants
// that has to name the incarnation, and so to have looked at the group.
func (h *Handler) forceDelete(c *call, id raftyard.GroupID, confirm string) error {
	if confirm == "" {
		status, err := h.cfg.Node.Group(c.r.Context(), id)
		if err != nil {
			return err
		}
		return newProblem(client.CodeInvalid, "a forced deletion also destroys what members "+
			"hold that cannot be reached now; confirm it with the group's incarnation: confirm=%s",
			status.Incarnation)
	}
	incarnation, err := uuid.Parse(confirm)
	if err != nil || incarnation == uuid.Nil {
		return newProblem(client.CodeInvalid,
			"confirm is %q, want the group's incarnation, a UUID", confirm)
	}
	return sendDeleted(c, id,
		h.cfg.Node.ForceDeleteGroup(c.r.Context(), id, raftyard.Incarnation(incarnation)))
}

func (h *Handler) forgetGroup(c *call) error {
	id, err := c.userGroupID()
	if err != nil {
		return err
	}
	if err := h.cfg.Node.ForgetGroup(c.r.Context(), id); err != nil {
		return err
	}
	return c.send(http.StatusOK, client.Forgotten{Group: id, Forgotten: true})
}
