package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/raftyard/raftyard"
)

// Consistency says how fresh a read is.
type Consistency string

const (
	// Linearizable reads see every write that was acknowledged before.
	Linearizable Consistency = "linearizable"
	// Stale reads see what some replica has, which may be old.
	Stale Consistency = "stale"
)

// A Cond says how a key must be for a put or a delete to be done. The zero Cond
// is no condition; at most one field may be set.
type Cond struct {
	Absent   bool   // the key must not exist
	Present  bool   // the key must exist
	Revision uint64 // the key must be at this revision
}

func (c Cond) header() http.Header {
	h := http.Header{}
	switch {
	case c.Absent:
		h.Set("If-None-Match", "*")
	case c.Present:
		h.Set("If-Match", "*")
	case c.Revision != 0:
		h.Set("If-Match", strconv.Quote(strconv.FormatUint(c.Revision, 10)))
	}
	return h
}

// Put stores a value under a key.
func (c *Client) Put(
	ctx context.Context, id raftyard.GroupID, key, value []byte, cond Cond,
) (*PutResult, error) {
	header := cond.header()
	header.Set("Content-Type", "application/octet-stream")
	return call[PutResult](ctx, c, request{
		method: http.MethodPut, path: keyPath(id, key), header: header, body: value,
	})
}

// Get returns a key's item. A key that is not there is a [Problem] with
// [CodeKeyNotFound].
func (c *Client) Get(
	ctx context.Context, id raftyard.GroupID, key []byte, how Consistency,
) (*Item, error) {
	ans, err := c.call(ctx, request{
		method: http.MethodGet, path: keyPath(id, key), query: how.query(),
	})
	if err != nil {
		return nil, err
	}
	item := &Item{Key: key, Value: ans.body, Revision: ans.revision()}
	// A node that does not tell leaves it zero.
	item.CreateRevision, _ = strconv.ParseUint(ans.header.Get(HeaderCreateRevision), 10, 64)
	return item, nil
}

// Headers of an answer to a get.
const (
	// HeaderCreateRevision is the revision of the command that made the key.
	HeaderCreateRevision = "Raftyard-Create-Revision"
	// HeaderConsistency is how fresh the answer is: a [Consistency].
	HeaderConsistency = "Raftyard-Consistency"
)

// Delete removes a key. A key that is not there is no error.
func (c *Client) Delete(
	ctx context.Context, id raftyard.GroupID, key []byte, cond Cond,
) (*DeleteResult, error) {
	return call[DeleteResult](ctx, c, request{
		method: http.MethodDelete, path: keyPath(id, key), header: cond.header(),
	})
}

// ListRequest chooses keys. The zero value is the first page of all.
type ListRequest struct {
	Prefix      []byte
	Limit       int    // zero: the node's default
	Cursor      string // NextCursor of the page before
	KeysOnly    bool
	Consistency Consistency // empty: Linearizable
}

// List returns one page of keys in the order of their bytes.
func (c *Client) List(ctx context.Context, id raftyard.GroupID, r ListRequest) (*Items, error) {
	q := r.Consistency.query()
	if len(r.Prefix) > 0 {
		q.Set("prefix", string(r.Prefix))
	}
	if r.Limit > 0 {
		q.Set("limit", strconv.Itoa(r.Limit))
	}
	if r.Cursor != "" {
		q.Set("cursor", r.Cursor)
	}
	if r.KeysOnly {
		q.Set("keys_only", "true")
	}
	return get[Items](ctx, c, groupPath(id)+"/kv", q)
}

// Txn does several operations on one group together.
func (c *Client) Txn(ctx context.Context, id raftyard.GroupID, t Txn) (*TxnResult, error) {
	req, err := request{method: http.MethodPost, path: groupPath(id) + "/txn"}.withJSON(t)
	if err != nil {
		return nil, err
	}
	return call[TxnResult](ctx, c, req)
}

func (c Consistency) query() url.Values {
	q := url.Values{}
	if c != "" {
		q.Set("consistency", string(c))
	}
	return q
}

func keyPath(id raftyard.GroupID, key []byte) string {
	return groupPath(id) + "/kv/" + escapeKey(key)
}
