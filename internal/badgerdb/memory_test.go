package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// TestMemory: what a database has in memory rises with what is written and read, stays within
// what it may have, and is told while Badger has its lock.
func TestMemory(t *testing.T) {
	for _, profile := range []Profile{Log, State} {
		t.Run(profile.String(), func(t *testing.T) {
			o := Options{
				Dir: t.TempDir(), MemTableSize: MinMemTableSize, Profile: profile,
				BlockCacheSize: 1 << 20, minValue: math.MaxInt,
			}
			db, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}()
			before := db.Memory()
			if before.MaxMemtableBytes < (numMemtables+2)*MinMemTableSize {
				t.Errorf("memtables may hold %d bytes", before.MaxMemtableBytes)
			}
			key := func(i int) []byte { return fmt.Appendf(nil, "key%04d", i) }
			const keys, size = 400, 10_000 // four memtables
			most, value := int64(0), bytes.Repeat([]byte("v"), size)
			for i := range keys {
				err := db.Commit(func(txn *Txn) error { return txn.Set(key(i), value) })
				if err = errors.Join(err, db.settle()); err != nil {
					t.Fatal(err)
				}
				m := db.Memory()
				if i == 0 && m.MemtableBytes < before.MemtableBytes+size {
					t.Errorf("memtables hold %d bytes with one value, %d without",
						m.MemtableBytes, before.MemtableBytes)
				}
				most = max(most, m.MemtableBytes)
			}
			if most < MinMemTableSize/2 || most > before.MaxMemtableBytes {
				t.Errorf("memtables hold %d bytes at most, which may be %d",
					most, before.MaxMemtableBytes)
			}
			readAllOf(t, db, keys, key)
			wantCached(t, db, o, profile)

			// Badger begins a memtable under its lock, and waits for the disk.
			last := db.Memory().MemtableBytes
			db.memtables.lock.Lock()
			got := db.Memory().MemtableBytes
			db.memtables.lock.Unlock()
			if got != last {
				t.Errorf("%d bytes are told under the lock, %d before", got, last)
			}
		})
	}
}

func readAllOf(t *testing.T, db *DB, keys int, key func(i int) []byte) {
	t.Helper()
	err := db.Read(func(r Reader) error {
		for i := range keys {
			value, err := r.Get(key(i))
			if err != nil || value == nil {
				return fmt.Errorf("%q: %d bytes, %w", key(i), len(value), err)
			}
			// A key that is nowhere is looked for in every table.
			if value, err = r.Get(append(key(i), '-')); err != nil || value != nil {
				return fmt.Errorf("a key that is nowhere: %d bytes, %w", len(value), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantCached wants what the cache holds of a database whose tables were read.
func wantCached(t *testing.T, db *DB, o Options, profile Profile) {
	t.Helper()
	m := db.Memory()
	if m.IndexCacheBytes <= 0 || m.IndexCacheBytes > m.MaxIndexCacheBytes ||
		m.MaxIndexCacheBytes != o.withDefaults().IndexCacheSize {
		t.Errorf("the cache of indexes holds %d of %d bytes",
			m.IndexCacheBytes, m.MaxIndexCacheBytes)
	}
	if profile == Log {
		if m.BlockCacheBytes != 0 || m.MaxBlockCacheBytes != 0 {
			t.Errorf("a log has a cache of blocks: %+v", m)
		}
		return
	}
	if m.MaxBlockCacheBytes != o.BlockCacheSize {
		t.Errorf("the cache may hold %d bytes, want %d", m.MaxBlockCacheBytes, o.BlockCacheSize)
	}
	// What is added to the cache is in it after a moment.
	for range 1000 {
		if m = db.Memory(); m.BlockCacheBytes > 0 {
			break
		}
		readAllOf(t, db, 400, func(i int) []byte { return fmt.Appendf(nil, "key%04d", i) })
	}
	if m.BlockCacheBytes <= 0 || m.BlockCacheBytes > m.MaxBlockCacheBytes {
		t.Errorf("the cache holds %d of %d bytes", m.BlockCacheBytes, m.MaxBlockCacheBytes)
	}
}

// TestMemoryOfNothing: a database that has no memtable, as one that is closed, holds nothing.
func TestMemoryOfNothing(t *testing.T) {
	m, err := memtablesOf(new(badger.DB))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.bytes(); got != 0 {
		t.Errorf("a database without memtables has %d bytes in them", got)
	}
}

// TestFiguresOfAClosedDatabase: whoever looks at figures now and then need not know that the
// database is closed, or being closed.
func TestFiguresOfAClosedDatabase(t *testing.T) {
	for _, value := range []string{"", "something to flush"} {
		for _, profile := range []Profile{Log, State} {
			o := testOptions(t)
			o.Profile = profile
			db := mustOpen(t, o)
			if value != "" {
				put(t, db, "k", value)
			}
			closed, looked := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(looked)
				for {
					db.Upkeep()
					select {
					case <-closed:
						return
					default:
					}
				}
			}()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			close(closed)
			<-looked
			if got := db.Upkeep().Memory.MemtableBytes; got != 0 {
				t.Errorf("%v, value %q: the memtables of a closed database have %d bytes",
					profile, value, got)
			}
		}
	}
}
