package badgerdb

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// A Reader reads a database of the [State] profile at one commit, and says what Badger
// conceals. To that a block of a table that cannot be read, or is not what was written, is the
// end of the table. It goes on with the older ones, and what was in the block looks as if it
// had never been, or as it was before. Here that is an error which wraps [ErrDamaged], and the
// table is looked into, as if [DB.Scrub] had found it.
//
// So behind Badger's answer the tables are asked that may have something newer. It costs
// little, since what they need is in the caches then, and what has its newest version in a
// memtable needs none.
//
// Its methods may be called from one goroutine at a time, as those of the transaction.
type Reader struct {
	db  *DB
	txn *badger.Txn
}

// Reader returns a Reader of what a transaction sees.
func (db *DB) Reader(txn *badger.Txn) Reader { return Reader{db: db, txn: txn} }

// Read runs fn with a Reader at the newest commit.
func (db *DB) Read(fn func(Reader) error) error {
	return db.View(func(txn *badger.Txn) error { return fn(db.Reader(txn)) })
}

// Get returns the value of a key in memory of its own, or nil if there is none. An empty value
// is not nil.
func (r Reader) Get(key []byte) ([]byte, error) {
	value, unseen, err := r.look(key)
	if err != nil || unseen.version == 0 {
		return value, err
	}
	// Badger has looked a little before us. If a deletion was in a memtable then, it may have
	// come to a table meanwhile, and have been merged away with what it deletes: whoever has
	// waited long enough in between has seen the one and not the other. That is not so twice.
	missed := r.db.reads.missed(unseen.table)
	value, unseen, err = r.look(key)
	if err == nil && unseen.version != 0 {
		return nil, missed
	}
	return value, err
}

// look returns what Badger says of a key, and a version of it in a table that Badger should have
// seen, if it says something else.
//
// The value is not copied again: an item that was got is nobody else's, and what it has of a
// memtable or a table Badger has copied for it. Its value log has nothing.
func (r Reader) look(key []byte) (value []byte, unseen version, err error) {
	var seen uint64 // the version; zero: none
	err = Guard(func() error {
		item, failed := r.txn.Get(key)
		if errors.Is(failed, badger.ErrKeyNotFound) {
			return nil
		}
		if failed != nil {
			return failed
		}
		seen = item.Version()
		return item.Value(func(own []byte) error {
			value = own
			if own == nil {
				value = []byte{}
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, version{}, err
	}
	newest, damage := r.db.reads.newest(key, r.txn.ReadTs(), seen)
	if err = cmp.Or(damage, err); err != nil {
		return nil, version{}, err
	}
	if newest.version == 0 || seen == 0 && newest.deleted {
		return value, version{}, nil
	}
	if seen == 0 {
		deleted := false
		err = Guard(func() error { deleted = r.isDeletedAfter(newest, key); return nil })
		if err != nil || deleted {
			return nil, version{}, err
		}
	}
	return nil, newest, nil
}

// isDeletedAfter reports whether a memtable has it that a key was deleted after a version.
func (r Reader) isDeletedAfter(than version, key []byte) bool {
	it := r.txn.NewKeyIterator(key, badger.IteratorOptions{})
	defer it.Close()
	it.Rewind()
	return it.Valid() && it.Item().Version() > than.version && it.Item().IsDeletedOrExpired()
}

// Scan calls fn for each key that begins with prefix, from start on, in order, until there is
// none or fn returns false or an error, which Scan returns. If Scan returns an error, fn may
// have been given something wrong, or something may have been left out. The item is valid
// until fn returns; a panic of fn is an error.
func (r Reader) Scan(
	prefix, start []byte, fn func(*badger.Item) (more bool, err error),
) error {
	if bytes.Compare(start, prefix) < 0 {
		start = prefix
	}
	seen := span{first: newestOf(start), last: beyond(prefix)}
	err := Guard(func() error {
		it := r.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		for it.Seek(start); it.Valid(); it.Next() {
			more, err := fn(it.Item())
			if err != nil {
				return err
			}
			if !more {
				seen.last = oldestOf(it.Item().Key())
				return nil
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	return errors.Join(r.db.reads.whole(seen), err)
}

// Check returns an error if something that begins with prefix, of whatever version, cannot be
// read.
func (r Reader) Check(prefix []byte) error {
	return r.db.reads.whole(span{first: newestOf(prefix), last: beyond(prefix)})
}

// beyond returns a key that comes after all that begin with prefix, as in a table, or nil.
func beyond(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] != math.MaxUint8 {
			next := bytes.Clone(prefix[:n])
			next[n-1]++
			return newestOf(next)
		}
	}
	return nil
}

// reads knows what is in the tables without Badger's help.
type reads struct {
	levels  liveLevels
	indexes *indexCache
	suspect func(table uint64) // is told of a table that could not be read
}

// A version of a key is in a table. The zero version is none.
type version struct {
	version uint64
	deleted bool
	table   uint64
}

// newest returns the newest version of a key in the tables that is not newer than one
// timestamp and newer than another.
func (r *reads) newest(key []byte, at, above uint64) (version, error) {
	seek, hash := keyOf(key, at), y.Hash(key)
	var newest version
	err := r.levels.each(span{seek, oldestOf(key)}, above, func(t *table.Table) error {
		return r.guard(t, func() error {
			x, err := r.indexes.of(t)
			if err != nil || !x.mayHave(hash) {
				return err
			}
			found, err := lookUp(t, x, seek)
			if err == nil && found.version > max(newest.version, above) {
				newest = found
			}
			return err
		})
	})
	return newest, err
}

// lookUp returns the version of a key that a table has at or before the key's own.
func lookUp(t *table.Table, x *tableIndex, seek []byte) (found version, err error) {
	it := t.NewIterator(0)
	defer func() { err = errors.Join(err, it.Close()) }()
	block := x.blockOf(seek)
	first, next := x.first(block), x.first(block+1)
	if it.Seek(first); !it.Valid() || !bytes.Equal(it.Key(), first) {
		return version{}, errTableBlock
	}
	for y.CompareKeys(it.Key(), seek) < 0 {
		// The table has something behind it, or it would not have been asked.
		if it.Next(); !it.Valid() {
			return version{}, errTableBlock
		}
	}
	if next != nil && y.CompareKeys(it.Key(), next) > 0 {
		return version{}, errTableBlock
	}
	if !y.SameKey(it.Key(), seek) {
		return version{}, nil
	}
	v := it.Value()
	return version{y.ParseTs(it.Key()), v.Meta&bitDelete != 0, t.ID()}, nil
}

// whole returns an error unless all that is in a span can be read.
func (r *reads) whole(s span) error {
	return r.levels.each(s, 0, func(t *table.Table) error {
		return r.guard(t, func() error {
			x, err := r.indexes.of(t)
			if err != nil {
				return err
			}
			if !x.isMapped(t) {
				return errTableIndex // Badger may have looked elsewhere
			}
			return readSpan(t, x, s)
		})
	})
}

// readSpan reads the blocks of a table in which there may be something of a span.
func readSpan(t *table.Table, x *tableIndex, s span) (err error) {
	it := t.NewIterator(0)
	defer func() { err = errors.Join(err, it.Close()) }()
	for block := x.blockOf(s.first); block < x.blocks; block++ {
		first := x.first(block)
		if s.last != nil && y.CompareKeys(first, s.last) > 0 {
			return nil
		}
		if it.Seek(first); !it.Valid() || !bytes.Equal(it.Key(), first) {
			return errTableBlock
		}
	}
	return nil
}

// guard calls fn, which reads a table, and says what is wrong with it.
func (r *reads) guard(t *table.Table, fn func() error) error {
	what := Guard(fn)
	if !errors.Is(what, ErrDamaged) && !errors.Is(what, errTableIndex) &&
		!errors.Is(what, errTableBlock) {
		return what
	}
	r.suspect(t.ID())
	return damaged("table "+table.IDToFilename(t.ID()), what)
}

// missed is the error of something that Badger has not found in a table and that is there.
func (r *reads) missed(id uint64) error {
	r.suspect(id)
	return fmt.Errorf("%w: table %s was read wrong", ErrDamaged, table.IDToFilename(id))
}
