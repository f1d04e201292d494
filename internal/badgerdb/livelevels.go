package badgerdb

import (
	"errors"
	"reflect"
	"slices"
	"sort"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// liveLevels are the tables of a database, as Badger itself reads them. It shows what they are
// called and no more, so they are read where it keeps them, under its locks.
type liveLevels []liveLevel

// A liveLevel is one of them. The tables of the first one overlap; those of another one are in the
// order of their keys, and do not.
type liveLevel struct {
	lock   *sync.RWMutex
	tables *[]*table.Table
	first  bool
}

// A span is a range of keys with their versions, ends included. Without a last one it has no
// end.
type span struct{ first, last []byte }

// levelsOf finds where Badger keeps its tables, or says that this is another Badger.
func levelsOf(db *badger.DB) (liveLevels, error) {
	lc := reflect.ValueOf(db).Elem().FieldByName("lc")
	if lc.Kind() != reflect.Pointer || lc.Elem().Kind() != reflect.Struct {
		return nil, errors.New("badger does not show its tables: it has no lc")
	}
	handlers := lc.Elem().FieldByName("levels")
	if handlers.Kind() != reflect.Slice || handlers.Len() == 0 {
		return nil, errors.New("badger does not show its tables: it has no lc.levels")
	}
	all := make(liveLevels, 0, handlers.Len())
	for i := range handlers.Len() {
		h := handlers.Index(i)
		if h.Kind() != reflect.Pointer || h.Elem().Kind() != reflect.Struct {
			return nil, errors.New("badger does not show its tables: lc.levels are others")
		}
		lock, tables := h.Elem().FieldByName("RWMutex"), h.Elem().FieldByName("tables")
		if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.RWMutex]() ||
			!tables.IsValid() || tables.Type() != reflect.TypeFor[[]*table.Table]() {
			return nil, errors.New("badger does not show its tables: its levels are others")
		}
		all = append(all, liveLevel{
			lock:   (*sync.RWMutex)(lock.Addr().UnsafePointer()),
			tables: (*[]*table.Table)(tables.Addr().UnsafePointer()),
			first:  i == 0,
		})
	}
	return all, nil
}

// each calls fn for every table that may have something in a span with a version above one,
// level by level from the first on, as Badger does: what a compaction moves meanwhile is seen
// at least once. A table stays while fn has it.
func (l liveLevels) each(s span, above uint64, fn func(*table.Table) error) error {
	for _, lv := range l {
		if err := lv.each(s, above, fn); err != nil {
			return err
		}
	}
	return nil
}

// find returns what table it is that has an id, with its bounds alone, if there is one.
func (l liveLevels) find(id uint64) (info badger.TableInfo, ok bool) {
	for _, lv := range l {
		lv.lock.RLock()
		at := slices.IndexFunc(*lv.tables, func(t *table.Table) bool { return t.ID() == id })
		if at >= 0 {
			t := (*lv.tables)[at]
			info, ok = badger.TableInfo{ID: id, Left: t.Smallest(), Right: t.Biggest()}, true
		}
		lv.lock.RUnlock()
	}
	return info, ok
}

func (l liveLevel) each(s span, above uint64, fn func(*table.Table) error) (err error) {
	held := l.hold(s, above)
	defer func() {
		for _, t := range held {
			err = errors.Join(err, t.DecrRef()) // the last one to do so deletes the file
		}
	}()
	for _, t := range held {
		if err := fn(t); err != nil {
			return err
		}
	}
	return nil
}

// hold returns the tables that may have something in a span. The caller gives each one back.
func (l liveLevel) hold(s span, above uint64) (held []*table.Table) {
	l.lock.RLock()
	defer l.lock.RUnlock()
	tables := *l.tables
	if !l.first {
		from := sort.Search(len(tables), func(i int) bool {
			return y.CompareKeys(tables[i].Biggest(), s.first) >= 0
		})
		tables = tables[from:]
	}
	for _, t := range tables {
		if s.last != nil && y.CompareKeys(t.Smallest(), s.last) > 0 {
			if l.first {
				continue
			}
			break
		}
		if t.MaxVersion() > above && y.CompareKeys(t.Biggest(), s.first) >= 0 {
			t.IncrRef()
			held = append(held, t)
		}
	}
	return held
}
