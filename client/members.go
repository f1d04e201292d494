package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/raftyard/raftyard"
)

// DeleteGroup deletes a group everywhere. It is no error when it is deleted
// already. It is refused with [CodeNoQuorum] when a majority of its voters cannot be
// reached. That it is decided is a success; the answer says whether it is over, too.
func (c *Client) DeleteGroup(ctx context.Context, id raftyard.GroupID) (*Deleted, error) {
	return call[Deleted](ctx, c, request{method: http.MethodDelete, path: groupPath(id)})
}

// ForceDeleteGroup deletes a group that has lost its majority, and with it what
// those may hold that cannot be reached now. confirm is its incarnation, from
// [Client.Group]: what is deleted is that group and no later one with its id.
func (c *Client) ForceDeleteGroup(
	ctx context.Context, id raftyard.GroupID, confirm string,
) (*Deleted, error) {
	return call[Deleted](ctx, c, request{
		method: http.MethodDelete, path: groupPath(id),
		query: url.Values{"force": {"true"}, "confirm": {confirm}},
	})
}

// ForgetGroup drops what the cluster remembers of a deleted group, once every node
// has cleaned up. A group that is forgotten already is [CodeGroupNotFound].
func (c *Client) ForgetGroup(ctx context.Context, id raftyard.GroupID) error {
	_, err := c.call(ctx, request{method: http.MethodPost, path: groupPath(id) + "/forget"})
	return err
}

// SetMembers sets the wanted members. With a wait, of at most 5 minutes, it returns
// when the group has them, or with [CodeNotReached] when it has not after that time, or
// a little before ctx ends.
func (c *Client) SetMembers(
	ctx context.Context, id raftyard.GroupID, m Members, wait time.Duration,
) (*Group, error) {
	req, err := request{
		method: http.MethodPut, path: groupPath(id) + "/members", wait: max(wait, 0),
	}.withJSON(m)
	if err != nil {
		return nil, err
	}
	return call[Group](ctx, c, req)
}

// AttachLearner has a node follow a group, and returns when the node has caught up: it
// gets the log and the state, serves reads, and has no vote. A node that has a member
// of the group already is left as it is. [CodeNotReached]: it is decided, and the node
// has not caught up within the time.
func (c *Client) AttachLearner(
	ctx context.Context, id raftyard.GroupID, node raftyard.NodeID,
) (*Group, error) {
	return call[Group](ctx, c, request{method: http.MethodPut, path: learnerPath(id, node)})
}

// DetachLearner ends what [Client.AttachLearner] began, and returns when nothing of the
// group is left on the node. A node that does not follow the group is no error.
// [CodeNotReached]: it is decided, and something may be left, such as on a node that
// is down.
func (c *Client) DetachLearner(
	ctx context.Context, id raftyard.GroupID, node raftyard.NodeID,
) (*Group, error) {
	return call[Group](ctx, c, request{method: http.MethodDelete, path: learnerPath(id, node)})
}

func learnerPath(id raftyard.GroupID, node raftyard.NodeID) string {
	return groupPath(id) + "/learners/" + node.String()
}
