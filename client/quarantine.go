package client

import (
	"context"
	"net/http"

	"github.com/raftyard/raftyard"
)

// RetryReplica has a node open its replica of a group again that is in quarantine, and
// returns how it is afterwards. Whether it gets further than before shows later, in
// [Client.Group]. [CodeInvalid]: the replica is not in quarantine.
func (c *Client) RetryReplica(
	ctx context.Context, id raftyard.GroupID, at raftyard.NodeID,
) (*Replica, error) {
	return call[Replica](ctx, c, request{
		method: http.MethodPost, path: replicaPath(id, at) + "/retry",
	})
}

// RebuildReplica has a node throw away the state of its replica of a group and take over
// that of another member; a replica whose log is damaged is replaced. It returns when that
// is done, or with [CodeNotReached] while it goes on.
func (c *Client) RebuildReplica(
	ctx context.Context, id raftyard.GroupID, at raftyard.NodeID,
) (*Replica, error) {
	return call[Replica](ctx, c, request{
		method: http.MethodPost, path: replicaPath(id, at) + "/rebuild",
	})
}

// Skip asks for an entry to be skipped.
type Skip struct {
	Index uint64 `json:"index"`
	// Confirm is the incarnation of the group, from [Client.Group].
	Confirm string `json:"confirm"`
	// Force skips it though a member does not answer, which may have applied it.
	Force bool `json:"force,omitempty"`
}

// Skipped answers [Client.SkipEntry].
type Skipped struct {
	Group raftyard.GroupID `json:"group"`
	Index uint64           `json:"index"`
	Term  uint64           `json:"term"` // of that entry
}

// SkipEntry has a group skip an entry of its log at which all its state machines fail. It
// is refused with [CodeInvalid] while a member has applied the entry or does not stand at
// it, and with [CodeUnhealthy] when a member cannot be asked, unless forced.
func (c *Client) SkipEntry(
	ctx context.Context, id raftyard.GroupID, s Skip,
) (*Skipped, error) {
	req, err := request{method: http.MethodPost, path: groupPath(id) + "/skip"}.withJSON(s)
	if err != nil {
		return nil, err
	}
	return call[Skipped](ctx, c, req)
}

func replicaPath(id raftyard.GroupID, at raftyard.NodeID) string {
	return groupPath(id) + "/replicas/" + at.String()
}
