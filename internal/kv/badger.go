package kv

import (
	"errors"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// OpenBadger opens a Badger database. It is the [Opener] of production.
func OpenBadger(o badgerdb.Options) (DB, error) {
	db, err := badgerdb.Open(o)
	if err != nil {
		return nil, err
	}
	return Badger{db}, nil
}

// Badger is a Badger database as a [DB].
type Badger struct{ *badgerdb.DB }

// Commit implements [DB].
func (b Badger) Commit(fn func(Writer) error) error {
	return b.DB.Commit(func(txn *badgerdb.Txn) error { return fn(txn) })
}

// Snapshot implements [DB].
func (b Badger) Snapshot() Snapshot { return badgerSnapshot{b.DB.Snapshot()} }

// TableBytes implements [DB].
func (b Badger) TableBytes() int64 {
	var n int64
	for _, level := range b.Levels() {
		n += level.Size
	}
	return n
}

// badgerSnapshot has one pointer, so that to make an interface of it costs nothing.
type badgerSnapshot struct{ at *badgerdb.Snapshot }

// Discard implements [Snapshot].
func (s badgerSnapshot) Discard() { s.at.Discard() }

// Get implements [Snapshot].
func (s badgerSnapshot) Get(key []byte) ([]byte, error) {
	if err := s.at.Err(); err != nil {
		return nil, err
	}
	item, err := s.at.Get(key)
	if err != nil {
		return nil, err
	}
	var value []byte
	err = s.at.Value(item, func(b []byte) error {
		value = slices.Clone(b)
		return nil
	})
	return value, err
}

// Scan implements [Snapshot]. It leaves out the keys that are the database's own.
func (s badgerSnapshot) Scan(fn func(key, value []byte, version uint64) error) error {
	if err := s.at.Err(); err != nil {
		return err
	}
	opts := badger.DefaultIteratorOptions
	opts.PrefetchValues = false // values come with the keys; prefetching copies them
	it := s.at.NewIterator(opts)
	defer it.Close()
	var item *badger.Item
	seen := false
	visit := func(value []byte) error {
		seen = true
		return fn(item.Key(), value, item.Version())
	}
	for it.Rewind(); it.Valid(); it.Next() {
		if item = it.Item(); badgerdb.Own(item.Key()) {
			continue
		}
		seen = false
		err := s.at.Value(item, visit)
		if !seen && errors.Is(err, badgerdb.ErrDamaged) {
			err = visit(nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
