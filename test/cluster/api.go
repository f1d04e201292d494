//go:build unix

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

// GroupPath returns the path of a group, with the rest behind it.
func GroupPath(g raftyard.GroupID, rest string) string { return "/v1/groups/" + g.String() + rest }

// KeyPath returns the path of a key.
func KeyPath(g raftyard.GroupID, key string) string {
	return GroupPath(g, "/kv/"+url.PathEscape(key))
}

// Get sends a GET and decodes the answer into v.
func (n *Node) Get(ctx context.Context, path string, query url.Values, v any) error {
	a := n.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query})
	if err := a.Decode(v); err != nil {
		return fmt.Errorf("node %d: GET %s: %w", n.id, path, err)
	}
	return nil
}

// Create sends the request that creates a group.
func (n *Node) Create(ctx context.Context, g raftyard.GroupID, spec client.Spec) Answer {
	r := Request{Method: http.MethodPut, Path: GroupPath(g, "")}
	return n.sendJSON(ctx, r, spec)
}

// Delete sends the request that deletes a group.
func (n *Node) Delete(ctx context.Context, g raftyard.GroupID) Answer {
	return n.Do(ctx, Request{Method: http.MethodDelete, Path: GroupPath(g, "")})
}

// ForceDelete sends the request that deletes a group which has lost its majority.
// Confirm is its incarnation.
func (n *Node) ForceDelete(ctx context.Context, g raftyard.GroupID, confirm string) Answer {
	return n.Do(ctx, Request{
		Method: http.MethodDelete, Path: GroupPath(g, ""),
		Query: url.Values{"force": {"true"}, "confirm": {confirm}},
	})
}

// Forget sends the request that drops what is remembered of a deleted group.
func (n *Node) Forget(ctx context.Context, g raftyard.GroupID) Answer {
	return n.Do(ctx, Request{Method: http.MethodPost, Path: GroupPath(g, "/forget")})
}

// Attach sends the request that has a node follow a group.
func (n *Node) Attach(
	ctx context.Context, g raftyard.GroupID, to raftyard.NodeID, timeout time.Duration,
) Answer {
	return n.Do(ctx, Request{
		Method: http.MethodPut, Path: GroupPath(g, "/learners/"+to.String()), Timeout: timeout,
	})
}

// Detach sends the request that ends that.
func (n *Node) Detach(
	ctx context.Context, g raftyard.GroupID, from raftyard.NodeID, timeout time.Duration,
) Answer {
	return n.Do(ctx, Request{
		Method: http.MethodDelete, Path: GroupPath(g, "/learners/"+from.String()),
		Timeout: timeout,
	})
}

// NodePath returns the path of a node, with the rest behind it.
func NodePath(id raftyard.NodeID, rest string) string { return "/v1/nodes/" + id.String() + rest }

// PutNode sends the request that has another node join, or tells where it is now.
func (n *Node) PutNode(ctx context.Context, other *Node) Answer {
	r := Request{Method: http.MethodPut, Path: NodePath(other.id, "")}
	return n.sendJSON(ctx, r, client.NodeSpec{Peer: other.ReachedAt(), HTTP: other.HTTPAddr()})
}

// Drain sends the request that has a node lead nothing, and Undrain the one that lets it
// lead again.
func (n *Node) Drain(
	ctx context.Context, id raftyard.NodeID, timeout time.Duration,
) Answer {
	return n.Do(ctx, Request{
		Method: http.MethodPost, Path: NodePath(id, "/drain"), Timeout: timeout,
	})
}

// Undrain is described at Drain.
func (n *Node) Undrain(
	ctx context.Context, id raftyard.NodeID, timeout time.Duration,
) Answer {
	return n.Do(ctx, Request{
		Method: http.MethodPost, Path: NodePath(id, "/undrain"), Timeout: timeout,
	})
}

// Remove sends the request that has a node leave for ever.
func (n *Node) Remove(ctx context.Context, id raftyard.NodeID, force bool) Answer {
	r := Request{Method: http.MethodDelete, Path: NodePath(id, "")}
	if force {
		r.Query = url.Values{"force": {"true"}}
	}
	return n.Do(ctx, r)
}

// NodeStatus returns what the node says of a node.
func (n *Node) NodeStatus(ctx context.Context, id raftyard.NodeID) (client.Node, error) {
	var got client.Node
	err := n.Get(ctx, NodePath(id, ""), nil, &got)
	return got, err
}

// SetMembers sends the request that sets the members of a group, and waits until
// it has them.
func (n *Node) SetMembers(
	ctx context.Context, g raftyard.GroupID, m client.Members, wait time.Duration,
) Answer {
	r := Request{
		Method: http.MethodPut, Path: GroupPath(g, "/members"), Timeout: wait, Wait: wait,
	}
	return n.sendJSON(ctx, r, m)
}

// Transfer sends the request that hands a group's leadership to a node.
func (n *Node) Transfer(
	ctx context.Context, g raftyard.GroupID, to raftyard.NodeID, timeout time.Duration,
) Answer {
	r := Request{Method: http.MethodPost, Path: GroupPath(g, "/transfer"), Timeout: timeout}
	return n.sendJSON(ctx, r, client.Transfer{To: to})
}

// Snapshot sends the request that takes a snapshot of a group.
func (n *Node) Snapshot(
	ctx context.Context, g raftyard.GroupID, timeout time.Duration,
) Answer {
	return n.Do(ctx, Request{
		Method: http.MethodPost, Path: GroupPath(g, "/snapshot"), Timeout: timeout,
	})
}

// Txn sends a transaction.
func (n *Node) Txn(
	ctx context.Context, g raftyard.GroupID, txn client.Txn, timeout time.Duration,
) Answer {
	r := Request{Method: http.MethodPost, Path: GroupPath(g, "/txn"), Timeout: timeout}
	return n.sendJSON(ctx, r, txn)
}

// sendJSON sends a request whose body is a document.
func (n *Node) sendJSON(ctx context.Context, r Request, doc any) Answer {
	body, err := json.Marshal(doc)
	if err != nil {
		return Answer{Outcome: NotApplied, Why: "bad_request", Err: err, Malformed: true}
	}
	r.Body, r.Header = body, http.Header{"Content-Type": {"application/json"}}
	return n.Do(ctx, r)
}

// Group returns what the node says of a group.
func (n *Node) Group(ctx context.Context, g raftyard.GroupID) (client.Group, error) {
	var got client.Group
	err := n.Get(ctx, GroupPath(g, ""), nil, &got)
	return got, err
}

// A Raft is the part that tests look at of what raft knows on one node.
type Raft struct {
	client.Replica
	Members        []client.Member `json:"members"`
	DurableApplied uint64          `json:"durable_applied"`
	ApplyQueue     int             `json:"apply_queue"`
	Queued         int             `json:"queued_proposals"`
	Inflight       int             `json:"inflight_proposals"`
	WaitingReads   int             `json:"waiting_reads"`
	Progress       []Progress      `json:"progress"`
}

// Progress is what a leader knows of one member.
type Progress struct {
	Node  raftyard.NodeID `json:"node"`
	State string          `json:"state"`
}

// Raft returns raft's view of a group on this node.
func (n *Node) Raft(ctx context.Context, g raftyard.GroupID) (Raft, error) {
	var got Raft
	err := n.Get(ctx, GroupPath(g, "/raft"), nil, &got)
	return got, err
}

// Hash returns the content hash of a group on this node, as it is.
func (n *Node) Hash(ctx context.Context, g raftyard.GroupID) (client.Hash, error) {
	var got client.Hash
	err := n.Get(ctx, GroupPath(g, "/hash"), nil, &got)
	return got, err
}

// List calls yield with every key of a group, page by page.
func (n *Node) List(
	ctx context.Context, g raftyard.GroupID, how client.Consistency, yield func(client.Item),
) error {
	query := url.Values{"limit": {"1000"}, "consistency": {string(how)}}
	for {
		var page client.Items
		if err := n.Get(ctx, GroupPath(g, "/kv"), query, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			yield(item)
		}
		if page.NextCursor == "" {
			return nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// Metrics is what a node says of itself in numbers: the value of each series, which
// is a name with its labels.
type Metrics map[string]float64

// Metrics returns the node's metrics.
func (n *Node) Metrics(ctx context.Context) (Metrics, error) {
	a := n.Do(ctx, Request{Method: http.MethodGet, Path: "/metrics"})
	if err := a.Error(); err != nil {
		return nil, fmt.Errorf("node %d: metrics: %w", n.id, err)
	}
	m := make(Metrics)
	lines := bufio.NewScanner(bytes.NewReader(a.Body))
	for lines.Scan() {
		series, value, ok := cutLast(lines.Text())
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("node %d: metric %s: %w", n.id, series, err)
		}
		m[series] = v
	}
	return m, lines.Err()
}

// Sum returns the sum of the series of a metric that hold all the texts, such as a
// label. False: there is none.
func (m Metrics) Sum(name string, labels ...string) (sum float64, found bool) {
	for series, v := range m {
		if base, _, _ := strings.Cut(series, "{"); base == name && holdsAll(series, labels) {
			sum, found = sum+v, true
		}
	}
	return sum, found
}

// Metric returns the sum of the series of a metric that hold all the texts.
func (n *Node) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	m, err := n.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	sum, found := m.Sum(name, labels...)
	if !found {
		return 0, fmt.Errorf("node %d: there is no metric %s with %q", n.id, name, labels)
	}
	return sum, nil
}

// cutLast cuts a line of metrics into the series and its value.
func cutLast(line string) (series, value string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || strings.HasPrefix(line, "#") {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}

func holdsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
