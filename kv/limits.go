package kv

import "github.com/raftyard/raftyard/internal/badgerdb"

// The limits are part of the state machine: a replica refuses a command that
// is beyond them with a result, and all replicas must agree on it. Changing one
// needs a new command version.
const (
	// MaxKeyBytes is the length of the longest key. The shortest has one byte.
	MaxKeyBytes = 4 << 10

	// MaxValueBytes is the length of the longest value. With its key and the
	// framing it fits a raft entry of 1 MiB, and its record stays below Badger's
	// value threshold, so that the value log is never used.
	MaxValueBytes = 1<<20 - 16<<10

	// MaxCommandBytes is the length of the longest encoded command.
	MaxCommandBytes = 1<<20 - 8<<10

	// MaxTxnOps is how many elements each of the three lists of a [Txn] may have.
	MaxTxnOps = 128

	// MaxResultBytes is how much an encoded result or answer may take. A
	// transaction whose gets would return more is refused, and has no effect; a
	// list ends early.
	MaxResultBytes = 1<<20 - 8<<10

	// MaxListItems is how many items one list may return, and what a limit of
	// zero means.
	MaxListItems = 10_000
)

// maxCommandWrites is what one command can add to a Badger transaction: its own
// bytes, the framing of each of its records and the machine's record.
const maxCommandWrites = MaxCommandBytes + MaxTxnOps*(recordOverhead+badgerdb.EntryOverhead) + 1<<10

// checkKey returns why key cannot be stored, or nil.
func checkKey(key []byte) error {
	switch {
	case len(key) == 0:
		return ErrEmptyKey
	case len(key) > MaxKeyBytes:
		return &LimitError{Reason: ErrKeyTooLarge, Limit: MaxKeyBytes, Actual: uint64(len(key))}
	default:
		return nil
	}
}

// checkItem returns why key and value cannot be stored, or nil.
func checkItem(key, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValueBytes {
		return &LimitError{
			Reason: ErrValueTooLarge, Limit: MaxValueBytes, Actual: uint64(len(value)),
		}
	}
	return nil
}
