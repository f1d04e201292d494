package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/raftyard/raftyard"
)

// Status returns what a node says of itself and of the cluster.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return get[Status](ctx, c, "/v1/status", nil)
}

// GroupFilter chooses groups. The zero value is the first page of all.
type GroupFilter struct {
	Limit   int             // zero: the node's default
	Cursor  string          // NextCursor of the page before
	Problem string          // groups with this problem; any: with one at all
	Node    raftyard.NodeID // groups with a member on this node
}

func (f GroupFilter) query() url.Values {
	q := url.Values{}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if f.Cursor != "" {
		q.Set("cursor", f.Cursor)
	}
	if f.Problem != "" {
		q.Set("problem", f.Problem)
	}
	if f.Node != 0 {
		q.Set("node", f.Node.String())
	}
	return q
}

// Groups returns one page of groups, ordered by id.
func (c *Client) Groups(ctx context.Context, f GroupFilter) (*Groups, error) {
	return get[Groups](ctx, c, "/v1/groups", f.query())
}

// Group returns everything about one group.
func (c *Client) Group(ctx context.Context, id raftyard.GroupID) (*Group, error) {
	return get[Group](ctx, c, groupPath(id), nil)
}

// CreateGroup makes a group, waits until it answers, and returns it. One that
// exists with the same spec is no error.
func (c *Client) CreateGroup(
	ctx context.Context, id raftyard.GroupID, spec Spec,
) (*CreatedGroup, error) {
	req, err := request{method: http.MethodPut, path: groupPath(id)}.withJSON(spec)
	if err != nil {
		return nil, err
	}
	return call[CreatedGroup](ctx, c, req)
}

// TransferLeader hands the leadership of a group to a node and returns when that
// has happened.
func (c *Client) TransferLeader(
	ctx context.Context, id raftyard.GroupID, to raftyard.NodeID,
) (*Transferred, error) {
	req, err := request{
		method: http.MethodPost, path: groupPath(id) + "/transfer",
	}.withJSON(Transfer{To: to})
	if err != nil {
		return nil, err
	}
	return call[Transferred](ctx, c, req)
}

// TakeSnapshot has a replica of the group take a snapshot and cut its log.
func (c *Client) TakeSnapshot(ctx context.Context, id raftyard.GroupID) (*Snapshot, error) {
	return call[Snapshot](ctx, c, request{
		method: http.MethodPost, path: groupPath(id) + "/snapshot",
	})
}

// Hash returns the content hash of the group's state machine on the node that is
// asked, at an applied index; zero: as it is.
func (c *Client) Hash(
	ctx context.Context, id raftyard.GroupID, index uint64,
) (*Hash, error) {
	q := url.Values{}
	if index > 0 {
		q.Set("index", strconv.FormatUint(index, 10))
	}
	return get[Hash](ctx, c, groupPath(id)+"/hash", q)
}

func groupPath(id raftyard.GroupID) string { return "/v1/groups/" + id.String() }

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (*T, error) {
	return call[T](ctx, c, request{method: http.MethodGet, path: path, query: q})
}

func call[T any](ctx context.Context, c *Client, req request) (*T, error) {
	ans, err := c.call(ctx, req)
	if err != nil {
		return nil, err
	}
	var v T
	err = ans.decode(&v)
	switch {
	case err != nil && req.changes(): // most likely it is done; it is not certain
		return nil, &UnknownError{Err: err}
	case err != nil:
		return nil, err
	}
	return &v, nil
}
