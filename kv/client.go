package kv

import (
	"context"
	"errors"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A DB proposes commands to groups and asks their state machines. It is what a
// [Client] needs of a node; a *node.Node is one.
type DB interface {
	// Propose returns when the command is applied. Its error says whether it
	// certainly has not been.
	Propose(ctx context.Context, g raftyard.GroupID, cmd []byte) (group.Result, error)

	// Query asks the state machine of g, on this node or on another.
	Query(
		ctx context.Context, g raftyard.GroupID, how group.Consistency, query []byte,
	) ([]byte, error)
}

// A Client reads and writes the keys of key-value groups. It checks every limit
// before anything is proposed. It may be used from several goroutines.
//
// Errors of the DB are returned as they are: those of a node say, through
// node.NotApplied, whether a write may have had an effect. Errors of this package,
// [PreconditionError] for one, mean that it had none, but for those that wrap
// [group.ErrUnknown]: the answer made no sense, because the group is not of the
// key-value kind or its nodes run other versions.
type Client struct {
	db DB
}

// NewClient returns a client of the groups that db, usually a *node.Node, reaches.
// It has nothing to close.
func NewClient(db DB) *Client { return &Client{db: db} }

// Put sets key to value if cond holds. It returns the group's revision after it,
// which is the key's, and whether the key did not exist before. A condition that
// does not hold is a [PreconditionError].
func (c *Client) Put(ctx context.Context, g raftyard.GroupID, key, value []byte, cond Cond) (
	rev uint64, created bool, err error,
) {
	err = errors.Join(checkItem(key, value), cond.check())
	if err != nil {
		return 0, false, err
	}
	res, err := c.propose(ctx, g, commandPut, encodePut(key, value, cond))
	return res.revision, res.flag, err
}

// Delete deletes key if cond holds. It returns whether the key existed and the
// group's revision after it. A key that does not exist is not an error, unless the
// condition demands one, which is a [PreconditionError] then.
func (c *Client) Delete(ctx context.Context, g raftyard.GroupID, key []byte, cond Cond) (
	deleted bool, rev uint64, err error,
) {
	err = errors.Join(checkKey(key), cond.check())
	if err != nil {
		return false, 0, err
	}
	res, err := c.propose(ctx, g, commandDelete, encodeDelete(key, cond))
	return res.flag, res.revision, err
}

// A TxnResult is what a [Txn] did.
type TxnResult struct {
	Succeeded bool       // all of Compares held
	Revision  uint64     // the group's, after it
	Results   []OpResult // of the operations that were done, in their order
}

// Txn runs a transaction. A transaction whose comparisons do not hold is not an
// error: it has done its Else.
func (c *Client) Txn(ctx context.Context, g raftyard.GroupID, t Txn) (TxnResult, error) {
	if err := t.check(); err != nil {
		return TxnResult{}, err
	}
	cmd := encodeTxn(t)
	if len(cmd) > MaxCommandBytes {
		return TxnResult{}, &LimitError{
			Reason: ErrTxnTooLarge, Limit: MaxCommandBytes, Actual: uint64(len(cmd)),
		}
	}
	res, err := c.propose(ctx, g, commandTxn, cmd)
	return TxnResult{Succeeded: res.flag, Revision: res.revision, Results: res.ops}, err
}

func (c *Client) propose(ctx context.Context, g raftyard.GroupID, kind commandKind, cmd []byte) (
	result, error,
) {
	res, err := c.db.Propose(ctx, g, cmd)
	if err != nil {
		return result{}, err
	}
	return decodeResult(res.Data, kind)
}

// Get returns the value of key, or [ErrNotFound].
func (c *Client) Get(
	ctx context.Context, g raftyard.GroupID, key []byte, how group.Consistency,
) (Value, error) {
	if err := checkKey(key); err != nil {
		return Value{}, err
	}
	data, err := c.db.Query(ctx, g, how, encodeGetQuery(key))
	if err != nil {
		return Value{}, err
	}
	a, err := decodeGetAnswer(data)
	if err != nil {
		return Value{}, err
	}
	if !a.found {
		return Value{}, ErrNotFound
	}
	return a.value, nil
}

// List returns a part of a range of keys, as one consistent view. Several lists
// that go on from each other are as many views.
func (c *Client) List(ctx context.Context, g raftyard.GroupID, q ListRequest) (
	ListResult, error,
) {
	if err := q.check(); err != nil {
		return ListResult{}, err
	}
	data, err := c.db.Query(ctx, g, q.Consistency, encodeListQuery(q))
	if err != nil {
		return ListResult{}, err
	}
	return decodeListAnswer(data)
}
