package badgerdb

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/skl"
	"github.com/dgraph-io/ristretto/v2"
)

// Memory is what a database has in memory, in bytes. Builders of tables are not in it.
type Memory struct {
	// MemtableBytes is what memtables hold that are written to, or are not in tables yet.
	// MaxMemtableBytes is what they take when there are as many as there may be, all full;
	// writes wait then.
	MemtableBytes, MaxMemtableBytes int64

	// BlockCacheBytes is what the cache of blocks of tables holds, and MaxBlockCacheBytes what
	// it may hold. Both are zero for the [Log] profile, which has none.
	BlockCacheBytes, MaxBlockCacheBytes int64

	// IndexCacheBytes is what the cache of indexes of tables holds, and MaxIndexCacheBytes what
	// it may hold. What package storage reads does not use it.
	IndexCacheBytes, MaxIndexCacheBytes int64
}

// Memory returns what the database has in memory. It does not wait for a commit, nor for a
// disk: while a memtable is begun it tells what there was before. Of a database that is closed,
// or about to be, it tells no memtables.
func (db *DB) Memory() Memory {
	o := db.Opts()
	arena := o.MemTableSize + db.MaxBatchSize() + db.MaxBatchCount()*int64(skl.MaxNodeSize)
	return Memory{
		MemtableBytes:      db.memtables.bytes(),
		MaxMemtableBytes:   (numMemtables + 2) * arena,
		BlockCacheBytes:    cached(db.BlockCacheMetrics()),
		MaxBlockCacheBytes: o.BlockCacheSize,
		IndexCacheBytes:    db.reads.indexes.bytes(),
		MaxIndexCacheBytes: db.reads.indexes.limit,
	}
}

// cached returns how much a cache holds, by what was added to it and what has gone.
func cached(m *ristretto.Metrics) int64 {
	if m == nil {
		return 0
	}
	return max(int64(m.CostAdded())-int64(m.CostEvicted()), 0)
}

// memtables knows those of a database. Badger does not tell, so that is read where it keeps
// it, under its lock.
type memtables struct {
	lock   *sync.RWMutex
	active reflect.Value // *memTable
	others reflect.Value // []*memTable, which are on their way to tables
	last   atomic.Int64

	mu     sync.Mutex // held while they are looked at, which is not for long
	closed bool
}

// memtablesOf finds where Badger has its memtables, or says that this is another Badger.
func memtablesOf(db *badger.DB) (*memtables, error) {
	of := reflect.ValueOf(db).Elem()
	lock, active, others := of.FieldByName("lock"), of.FieldByName("mt"), of.FieldByName("imm")
	if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.RWMutex]() {
		return nil, errors.New("badger does not tell its memtables: it has no lock")
	}
	if !active.IsValid() || active.Kind() != reflect.Pointer || !others.IsValid() ||
		others.Type() != reflect.SliceOf(active.Type()) ||
		active.Type().Elem().Kind() != reflect.Struct {
		return nil, errors.New("badger does not tell its memtables: it has no mt and imm")
	}
	list, ok := active.Type().Elem().FieldByName("sl")
	if !ok || list.Type != reflect.TypeFor[*skl.Skiplist]() {
		return nil, errors.New("badger does not tell its memtables: they have no sl")
	}
	return &memtables{
		lock: (*sync.RWMutex)(lock.Addr().UnsafePointer()), active: active, others: others,
	}, nil
}

// bytes returns how much they hold. While Badger begins one it holds the lock, and waits for
// the disk perhaps.
func (m *memtables) bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0
	}
	if !m.lock.TryRLock() {
		return m.last.Load()
	}
	defer m.lock.RUnlock()
	sum := held(m.active)
	for i := range m.others.Len() {
		sum += held(m.others.Index(i))
	}
	m.last.Store(sum)
	return sum
}

// close has nobody look at them any more: Badger lets go of them without its lock then.
func (m *memtables) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// held returns how much a memtable holds. One that is in use has a list that is not freed.
func held(table reflect.Value) int64 {
	if table.IsNil() {
		return 0
	}
	list := (*skl.Skiplist)(table.Elem().FieldByName("sl").UnsafePointer())
	if list == nil {
		return 0
	}
	return list.MemSize()
}
