package kv

import (
	"errors"
	"fmt"

	"github.com/raftyard/raftyard/group"
)

// Errors of requests. A request that is refused with one of them had no effect,
// except with ErrReplayed, which says otherwise.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("kv: key not found")

	// ErrPrecondition: the key is not as the [Cond] demands. It is wrapped by a
	// [PreconditionError].
	ErrPrecondition = errors.New("kv: precondition failed")

	// ErrEmptyKey: a key has at least one byte.
	ErrEmptyKey = errors.New("kv: empty key")

	// ErrKeyTooLarge, ErrValueTooLarge and ErrTxnTooLarge: the request is beyond
	// a limit of this package. They are wrapped by a [LimitError].
	ErrKeyTooLarge   = errors.New("kv: key too large")
	ErrValueTooLarge = errors.New("kv: value too large")
	ErrTxnTooLarge   = errors.New("kv: transaction too large")

	// ErrResultTooLarge: what the transaction's gets would return is more than
	// [MaxResultBytes]. It is wrapped by a [LimitError].
	ErrResultTooLarge = errors.New("kv: transaction result too large")

	// ErrInvalid: the request makes no sense, or its encoding is not one of this
	// version's.
	ErrInvalid = errors.New("kv: invalid request")

	// ErrReplayed: the command had been applied before this replica was
	// restarted, and its result is not known any more. Only a command that is
	// applied for the second time is answered so, which has nobody waiting. A
	// [Client] returns it with [group.ErrUnknown].
	ErrReplayed = errors.New("kv: command was applied before")
)

// Errors of the store.
var (
	// ErrFailed: a write failed. The store refuses all further work, because
	// nobody knows what is on the disk; only a restart finds out.
	ErrFailed = fmt.Errorf("kv: store failed: %w", group.ErrFatal)

	// ErrClosed: the store or the machine is closed.
	ErrClosed = errors.New("kv: closed")

	// ErrLocked: another process, or another Store of this one, has the
	// directory open.
	ErrLocked = errors.New("kv: store is in use")

	// ErrOpen: the replica's machine is open already.
	ErrOpen = errors.New("kv: machine is open already")

	// ErrDamaged: what is stored cannot be trusted. It concerns one replica.
	ErrDamaged = errors.New("kv: damaged")

	// ErrStoreDamaged: nothing that is stored can be trusted, of no replica. [SetAside]
	// makes room for a new store.
	ErrStoreDamaged = errors.New("kv: store is damaged")

	// ErrFormat: the directory was written by a version with another format.
	ErrFormat = errors.New("kv: unknown format")

	// ErrSnapshotFormat: a stream is not a whole, undamaged snapshot.
	ErrSnapshotFormat = errors.New("kv: bad snapshot stream")

	// ErrTooManySnapshots: as many snapshots as the store allows are open. Try
	// again when one has been closed.
	ErrTooManySnapshots = errors.New("kv: too many open snapshots")
)

// LimitError reports a request that is beyond a limit.
type LimitError struct {
	Reason error  // one of the Err…TooLarge
	Limit  uint64 // in bytes, or in elements of a list
	Actual uint64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %d, the limit is %d", e.Reason, e.Actual, e.Limit)
}

func (e *LimitError) Unwrap() error { return e.Reason }

// PreconditionError reports a conditional put or delete that was not done.
type PreconditionError struct {
	Current uint64 // the key's revision; zero: there is no such key
}

func (e *PreconditionError) Error() string {
	if e.Current == 0 {
		return ErrPrecondition.Error() + ": the key does not exist"
	}
	return fmt.Sprintf("%v: the key is at revision %d", ErrPrecondition, e.Current)
}

func (e *PreconditionError) Unwrap() error { return ErrPrecondition }

// DamageError reports a record that is not what was written. It wraps
// [ErrDamaged].
type DamageError struct {
	Key  []byte // the user's key, or the record's when it is not an item
	What string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%v: record of key %q: %s", ErrDamaged, e.Key, e.What)
}

func (e *DamageError) Unwrap() error { return ErrDamaged }
