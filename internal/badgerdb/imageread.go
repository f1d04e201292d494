package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sort"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// errStop ends a Scan early.
var errStop = errors.New("stop")

// bitValuePointer: the value is elsewhere, in a file where raftyard puts none.
const bitValuePointer = 1 << 1

// Get returns the value of a key in memory of its own, or [badger.ErrKeyNotFound]. An error that
// wraps [ErrDamaged] says that it is not what was written.
func (m *Image) Get(key []byte) (value []byte, err error) {
	found := false
	err = m.each(key, func(k []byte, v y.ValueStruct, version uint64) error {
		if bytes.Equal(k, key) {
			got, verr := m.value(v, k, version)
			if verr != nil {
				return verr
			}
			value, found = bytes.Clone(got), true
		}
		return errStop // the key itself is the first that begins with it
	})
	if err == nil && !found {
		err = badger.ErrKeyNotFound
	}
	return value, err
}

// Scan calls fn with every pair whose key has a prefix, by key, until fn returns an error,
// which it returns. Version is that of the transaction which wrote the pair. Key and value
// may be used until fn returns. A value that is not what was written is given as nil, and
// [Image.Get] says why. The keys that are the database's own are left out.
func (m *Image) Scan(prefix []byte, fn func(key, value []byte, version uint64) error) error {
	return m.each(prefix, func(key []byte, v y.ValueStruct, version uint64) error {
		if Own(key) {
			return nil
		}
		value, err := m.value(v, key, version)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		return fn(key, value, version)
	})
}

// each calls fn with the newest version of every key that has a prefix and is not deleted.
func (m *Image) each(
	prefix []byte, fn func(key []byte, v y.ValueStruct, version uint64) error,
) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: a table is unreadable: %v", ErrDamaged, p)
		}
	}()
	it := m.iterator()
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	var last []byte
	for it.Seek(y.KeyWithTs(prefix, math.MaxUint64)); it.Valid(); it.Next() {
		key := y.ParseKey(it.Key())
		if !bytes.HasPrefix(key, prefix) {
			return nil
		}
		if last != nil && bytes.Equal(key, last) {
			continue // an older version
		}
		last = append(last[:0], key...)
		v := it.Value()
		switch {
		case v.Meta&bitDelete != 0:
			continue
		case v.Meta&bitValuePointer != 0:
			return fmt.Errorf("%w: the value of key %x is in a value log", ErrDamaged, key)
		}
		err := fn(last, v, y.ParseTs(it.Key()))
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value returns the value of a pair, wherever it is.
func (m *Image) value(v y.ValueStruct, key []byte, version uint64) ([]byte, error) {
	if v.UserMeta&metaPointer == 0 {
		return v.Value, nil
	}
	return m.elsewhere.read(v.Value, key, version)
}

// valuesOf returns a file that is kept for its values.
func (m *Image) valuesOf(id uint32, _ uint64) (io.ReaderAt, string, error) {
	name := valueName(id)
	if f, ok := m.values[id]; ok {
		return f, name, nil
	}
	f, err := os.Open(filepath.Join(m.dir, name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = damaged(name, errMissing)
		}
		return nil, "", err
	}
	if m.values == nil {
		m.values = make(map[uint32]*os.File)
	}
	m.values[id] = f
	return f, name, nil
}

// iterator merges the logs and all tables, what is newer before what is older.
func (m *Image) iterator() y.Iterator {
	all := []y.Iterator{&walIterator{pairs: m.wal}}
	for _, lv := range m.levels {
		if lv.number != 0 {
			all = append(all, table.NewConcatIterator(lv.tables, table.NOCACHE))
			continue
		}
		for _, t := range lv.tables {
			all = append(all, t.NewIterator(table.NOCACHE))
		}
	}
	return table.NewMergeIterator(all, false)
}

// walIterator goes through sorted pairs.
type walIterator struct {
	pairs []pair
	at    int
}

var _ y.Iterator = (*walIterator)(nil)

// Next implements [y.Iterator].
func (w *walIterator) Next() { w.at++ }

// Rewind implements [y.Iterator].
func (w *walIterator) Rewind() { w.at = 0 }

// Valid implements [y.Iterator].
func (w *walIterator) Valid() bool { return w.at < len(w.pairs) }

// Key implements [y.Iterator].
func (w *walIterator) Key() []byte { return w.pairs[w.at].key }

// Value implements [y.Iterator].
func (w *walIterator) Value() y.ValueStruct { return w.pairs[w.at].value }

// Close implements [y.Iterator].
func (w *walIterator) Close() error { return nil }

// Seek implements [y.Iterator].
func (w *walIterator) Seek(key []byte) {
	w.at = sort.Search(len(w.pairs), func(i int) bool {
		return y.CompareKeys(w.pairs[i].key, key) >= 0
	})
}
