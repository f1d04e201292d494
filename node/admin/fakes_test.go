package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// fakeNode answers with what it holds. err, when set, is the answer to every
// call that can fail.
type fakeNode struct {
	mu     sync.Mutex
	err    error
	kind   string
	calls  []string // what was asked, with its arguments
	ready  bool
	checks []node.Check
	live   error
	away   error // the answer of Outside
	next   raftyard.GroupID
	exists bool
	panics bool
	stored node.GroupStatus // what Group answers
	// groupErr is the answer of Group alone.
	groupErr error
	nodeErr  error         // the answer of NodeStatus alone
	block    chan struct{} // when not nil, Group waits for it or for the context
	left     time.Duration // until the deadline of the last SetMembers
}

func (f *fakeNode) note(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if f.panics {
		panic("the fake panics")
	}
	return f.err
}

func (f *fakeNode) Kind(raftyard.GroupID) (string, bool) { return f.kind, f.kind != "" }

func (f *fakeNode) Groups(
	_ context.Context, filter node.GroupFilter,
) ([]node.GroupSummary, raftyard.GroupID, error) {
	err := f.note("groups " + describeFilter(filter))
	return []node.GroupSummary{{ID: filter.After + 1, Kind: "kv"}}, f.next, err
}

func describeFilter(f node.GroupFilter) string {
	return strings.Join([]string{
		f.After.String(), f.Node.String(), f.Problem, raftyard.GroupID(f.Limit).String(),
	}, ",")
}

func (f *fakeNode) Group(ctx context.Context, id raftyard.GroupID) (node.GroupStatus, error) {
	if f.block != nil {
		select {
		case <-f.block:
		case <-ctx.Done():
			return node.GroupStatus{}, ctx.Err()
		}
	}
	err := errors.Join(f.note("group "+id.String()), f.groupErr)
	status := f.stored
	status.ID = id
	return status, err
}

func (f *fakeNode) CreateGroup(_ context.Context, spec node.Spec) (bool, error) {
	return !f.exists, f.note("create " + spec.ID.String() + " " + spec.Kind)
}

func (f *fakeNode) DeleteGroup(_ context.Context, id raftyard.GroupID) error {
	return f.note("delete " + id.String())
}

func (f *fakeNode) ForceDeleteGroup(
	_ context.Context, id raftyard.GroupID, confirm raftyard.Incarnation,
) error {
	return f.note("force delete " + id.String() + " " + confirm.String())
}

func (f *fakeNode) ForgetGroup(_ context.Context, id raftyard.GroupID) error {
	return f.note("forget " + id.String())
}

func (f *fakeNode) AddLearner(
	_ context.Context, id raftyard.GroupID, on raftyard.NodeID,
) (node.GroupStatus, error) {
	return f.stored, f.note("attach " + id.String() + " " + on.String())
}

func (f *fakeNode) RemoveLearner(
	_ context.Context, id raftyard.GroupID, on raftyard.NodeID,
) (node.GroupStatus, error) {
	return f.stored, f.note("detach " + id.String() + " " + on.String())
}

func (f *fakeNode) PutNode(_ context.Context, spec node.NodeSpec) (bool, error) {
	return !f.exists, f.note(fmt.Sprint("put node ", spec.ID, " ", spec.Peer, " ", spec.HTTP, " ",
		spec.Labels))
}

func (f *fakeNode) DrainNode(
	_ context.Context, id raftyard.NodeID,
) (node.NodeStatus, error) {
	return node.NodeStatus{ID: id, State: "drained"}, f.note("drain " + id.String())
}

func (f *fakeNode) UndrainNode(
	_ context.Context, id raftyard.NodeID,
) (node.NodeStatus, error) {
	return node.NodeStatus{ID: id, State: "active"}, f.note("undrain " + id.String())
}

func (f *fakeNode) RemoveNode(
	_ context.Context, id raftyard.NodeID, force bool,
) (node.NodeStatus, error) {
	return node.NodeStatus{ID: id, State: "removed"},
		f.note(fmt.Sprint("remove ", id, " force ", force))
}

func (f *fakeNode) SetMembers(
	ctx context.Context, id raftyard.GroupID, m node.Members, wait bool,
) (node.GroupStatus, error) {
	call := "members " + id.String()
	if m.Force {
		call += " force"
	}
	deadline, ok := ctx.Deadline()
	if wait && ok {
		call += " wait"
	}
	f.mu.Lock()
	f.left = time.Until(deadline)
	f.mu.Unlock()
	if f.block != nil && wait {
		<-ctx.Done()
	}
	return node.GroupStatus{}, f.note(call)
}

func (f *fakeNode) TransferLeader(
	_ context.Context, id raftyard.GroupID, to raftyard.NodeID,
) error {
	return f.note("transfer " + id.String() + " " + to.String())
}

func (f *fakeNode) RetryReplica(
	_ context.Context, id raftyard.GroupID, at raftyard.NodeID,
) (node.ReplicaStatus, error) {
	return node.ReplicaStatus{Node: at}, f.note("retry " + id.String() + " " + at.String())
}

func (f *fakeNode) RebuildReplica(
	_ context.Context, id raftyard.GroupID, at raftyard.NodeID,
) (node.ReplicaStatus, error) {
	return node.ReplicaStatus{Node: at}, f.note("rebuild " + id.String() + " " + at.String())
}

func (f *fakeNode) SkipEntry(
	_ context.Context, id raftyard.GroupID, s node.Skip,
) (node.Skipped, error) {
	return node.Skipped{Group: id, Index: s.Index, Term: 3},
		f.note(fmt.Sprint("skip ", id, " ", s.Index, " ", s.Confirm, " ", s.Force))
}

func (f *fakeNode) TakeSnapshot(
	_ context.Context, id raftyard.GroupID,
) (node.SnapshotInfo, error) {
	return node.SnapshotInfo{Group: id, Index: 9}, f.note("snapshot " + id.String())
}

func (f *fakeNode) RaftStatus(
	_ context.Context, id raftyard.GroupID,
) (node.RaftStatus, error) {
	return node.RaftStatus{}, f.note("raft " + id.String())
}

func (f *fakeNode) Hash(
	_ context.Context, id raftyard.GroupID, index uint64,
) (node.HashInfo, error) {
	return node.HashInfo{Group: id, Index: index, Hash: "ab"}, f.note("hash " + id.String())
}

func (f *fakeNode) Status(context.Context) node.Status { return node.Status{Cluster: "c"} }

func (f *fakeNode) Nodes(context.Context) []node.NodeStatus { return nil }

func (f *fakeNode) NodeStatus(
	_ context.Context, id raftyard.NodeID,
) (node.NodeStatus, error) {
	return node.NodeStatus{ID: id}, errors.Join(f.note("node "+id.String()), f.nodeErr)
}

func (f *fakeNode) Ready() (bool, []node.Check) { return f.ready, f.checks }

func (f *fakeNode) Live() error { return f.live }

func (f *fakeNode) Outside() error { return f.away }

// fakeKV is an ordered store in memory, of one group.
type fakeKV struct {
	mu    sync.Mutex
	err   error
	rev   uint64
	items map[string]kv.Value
	txn   kv.Txn // the last one
	stale bool   // of the last read
	short bool   // Txn is done, and gives no results
}

func (f *fakeKV) check(key []byte, c kv.Cond) error {
	it, ok := f.items[string(key)]
	switch {
	case f.err != nil:
		return f.err
	case c.Absent && ok, c.Present && !ok, c.Revision != 0 && it.Revision != c.Revision:
		return &kv.PreconditionError{Current: it.Revision}
	}
	return nil
}

func (f *fakeKV) Put(
	_ context.Context, _ raftyard.GroupID, key, value []byte, c kv.Cond,
) (uint64, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(key, c); err != nil {
		return 0, false, err
	}
	f.rev++
	old, existed := f.items[string(key)]
	now := kv.Value{Data: bytes.Clone(value), Revision: f.rev, CreateRevision: f.rev}
	if existed {
		now.CreateRevision = old.CreateRevision
	}
	if f.items == nil {
		f.items = map[string]kv.Value{}
	}
	f.items[string(key)] = now
	return f.rev, !existed, nil
}

func (f *fakeKV) Get(
	_ context.Context, _ raftyard.GroupID, key []byte, how node.Consistency,
) (kv.Value, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = how == node.Stale
	it, ok := f.items[string(key)]
	if f.err == nil && !ok {
		return it, kv.ErrNotFound
	}
	return it, f.err
}

func (f *fakeKV) Delete(
	_ context.Context, _ raftyard.GroupID, key []byte, c kv.Cond,
) (bool, uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(key, c); err != nil {
		return false, 0, err
	}
	_, ok := f.items[string(key)]
	delete(f.items, string(key))
	return ok, f.rev, nil
}

func (f *fakeKV) List(
	_ context.Context, _ raftyard.GroupID, r kv.ListRequest,
) (kv.ListResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = r.Consistency == node.Stale
	var keys []string
	for key := range f.items {
		if strings.HasPrefix(key, string(r.Prefix)) && key >= string(r.Start) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	out := kv.ListResult{Revision: f.rev}
	for i, key := range keys {
		if i == r.Limit {
			out.Next = []byte(key)
			break
		}
		out.Items = append(out.Items, kv.ListItem{Key: []byte(key), Value: f.items[key]})
	}
	return out, f.err
}

func (f *fakeKV) Txn(_ context.Context, _ raftyard.GroupID, t kv.Txn) (kv.TxnResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.txn = t
	out := kv.TxnResult{Succeeded: true, Revision: 5}
	if f.short {
		return out, nil
	}
	for _, op := range t.Then {
		out.Results = append(out.Results, kv.OpResult{
			Kind: op.Kind, Found: true, Value: kv.Value{Data: []byte("v"), Revision: 3},
		})
	}
	return out, f.err
}

// newHandler returns a handler of a ready node with groups of kind kv.
func newHandler(t *testing.T, cfg Config) (*Handler, *fakeNode, *fakeKV) {
	t.Helper()
	n := &fakeNode{kind: "kv", ready: true}
	data := &fakeKV{}
	cfg.Node, cfg.KV = n, data
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h, n, data
}

// ask sends one request to a handler. Headers are "Name: value".
func ask(h http.Handler, method, target, body string, headers ...string) answer {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{StatusCode: w.Code, Header: w.Header(), Body: w.Body.String()}
}

// An answer is a whole one of a handler.
type answer struct {
	StatusCode int
	Header     http.Header
	Body       string
}

// text reads the body of an answer.
func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// logTo returns a logger that writes to b.
func logTo(b *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
