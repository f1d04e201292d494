package badgerdb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/raftyard/raftyard/internal/vfs/vfstest"
)

// awaitFlushes waits until nothing is to be written to tables.
func awaitFlushes(t testing.TB, db *DB) {
	t.Helper()
	for d := newDeadline(t); db.room.isFlushing(); {
		d.wait("the flushes")
	}
}

// writeState opens a database of the State profile with two values of each of 600 keys in tables.
func writeState(t testing.TB, o Options) *DB {
	t.Helper()
	o.Profile = State
	db := openByHand(t, o)
	for round := range 2 {
		change(t, db, 600, 10, func(txn *Txn, key []byte) error {
			value := fmt.Append(nil, round)
			for i := range 300 {
				value = fmt.Appendf(value, "{%q: %d}", key, i*7919)
			}
			return txn.Set(key, value)
		})
	}
	awaitFlushes(t, db)
	return db
}

// TestReaderIsRight: a Reader says what Badger says, of a sound database, whatever is in which
// memtable or table.
func TestReaderIsRight(t *testing.T) {
	o := testOptions(t)
	o.Profile, o.IndexCacheSize = State, 40<<10 // for some of the tables
	db := openByHand(t, o)
	defer mustClose(t, db)
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]string)
	key := func() string { return fmt.Sprintf("key-%03d", random.IntN(500)) }
	for round := range 60 {
		err := db.Commit(func(txn *Txn) error {
			var errs []error
			for range 50 {
				k, v := key(), fmt.Sprint(round, strings.Repeat("x", random.IntN(4000)))
				if random.IntN(3) == 0 {
					delete(want, k)
					errs = append(errs, txn.Delete([]byte(k)))
				} else {
					want[k] = v
					errs = append(errs, txn.Set([]byte(k), []byte(v)))
				}
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
		if round%20 == 0 {
			checkReader(t, db, want)
		}
	}
	awaitFlushes(t, db)
	checkReader(t, db, want)
	if err := db.Reclaim(); err != nil {
		t.Fatal(err)
	}
	checkReader(t, db, want)
	if u := db.Upkeep(); len(u.Damaged) != 0 {
		t.Errorf("damaged are %v", u.Damaged)
	}
	if c := db.reads.indexes; c.size > c.limit {
		t.Errorf("%d bytes of indexes are kept, the limit is %d", c.size, c.limit)
	}
}

// TestReaderValueIsItsOwn: who has a value may change it, wherever it is from, and it stays when
// another is put.
func TestReaderValueIsItsOwn(t *testing.T) {
	o := testOptions(t)
	o.Profile = State
	db := openByHand(t, o)
	defer mustClose(t, db)
	key, other := []byte("key"), []byte("empty")
	put := func(value string) {
		err := db.Commit(func(txn *Txn) error {
			return errors.Join(txn.Set(key, []byte(value)), txn.Set(other, nil))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func(key []byte) (value []byte) {
		err := db.Read(func(r Reader) (err error) {
			value, err = r.Get(key)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	put("first")
	for _, from := range []string{"a memtable", "a table"} {
		if from == "a table" {
			if err := db.Reclaim(); err != nil {
				t.Fatal(err)
			}
		}
		mine := get(key)
		copy(mine, "mine!")
		if got := get(key); string(got) != "first" {
			t.Errorf("from %s: %q after a change of another's, want first", from, got)
		}
		if got := get(other); got == nil || len(got) != 0 {
			t.Errorf("from %s: an empty value is %#v, want empty and not nil", from, got)
		}
		put("later")
		if string(mine) != "mine!" {
			t.Errorf("from %s: %q when another is put, want what it was", from, mine)
		}
		put("first")
	}
}

func checkReader(t *testing.T, db *DB, want map[string]string) {
	t.Helper()
	err := db.Read(func(r Reader) error {
		for i := range 501 { // one more than there are
			k := fmt.Sprintf("key-%03d", i)
			got, err := r.Get([]byte(k))
			if v, ok := want[k]; err != nil || ok != (got != nil) || string(got) != v {
				t.Errorf("%s is %.9q, %v, want %.9q", k, got, err, v)
			}
		}
		for _, prefix := range []string{"", "k", "key-1", "key-25", "key-499", "zz", "\xff\xff"} {
			n := 0
			start := []byte("key-12")
			err := r.Scan([]byte(prefix), start, func(item *badger.Item) (bool, error) {
				if Own(item.Key()) {
					return true, nil
				}
				n++
				if v, ok := want[string(item.Key())]; !ok || !valueIs(item, v) {
					t.Errorf("%s is scanned, want %.9q", item.Key(), v)
				}
				return n < 100, nil
			})
			there := 0
			for k := range want {
				if strings.HasPrefix(k, prefix) && k >= "key-12" {
					there++
				}
			}
			if err != nil || n != min(there, 100) {
				t.Errorf("%q: %d scanned, want %d, %v", prefix, n, min(there, 100), err)
			}
		}
		return r.Check(nil)
	})
	if err != nil {
		t.Error(err)
	}
}

func valueIs(item *badger.Item, want string) (is bool) {
	err := item.Value(func(v []byte) error { is = string(v) == want; return nil })
	return is && err == nil
}

// answers are what a Reader makes of all keys that writeState has written: how many are told to
// be damaged, and all others have their newest value.
func answers(t *testing.T, db *DB, want func(key string) string) (damaged int) {
	t.Helper()
	err := db.Read(func(r Reader) error {
		for i := range 600 {
			key := fmt.Sprintf("burst-%04d", i)
			got, err := r.Get([]byte(key))
			switch {
			case errors.Is(err, ErrDamaged):
				damaged++
			case err != nil || string(got) != want(key):
				t.Errorf("%s is %.20q, %v", key, got, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return damaged
}

// newestValues returns what there is before anything is damaged.
func newestValues(t *testing.T, db *DB) func(key string) string {
	t.Helper()
	all := make(map[string]string)
	err := db.Read(func(r Reader) error {
		return r.Scan([]byte("burst"), nil, func(item *badger.Item) (bool, error) {
			return true, item.Value(func(v []byte) error {
				all[string(item.Key())] = string(v)
				return nil
			})
		})
	})
	if err != nil || len(all) != 600 {
		t.Fatalf("%d keys are there, %v", len(all), err)
	}
	return func(key string) string { return all[key] }
}

// newestTable returns the table with the newest values, and its path.
func newestTable(t *testing.T, db *DB) (path string, of badger.TableInfo) {
	t.Helper()
	for _, info := range db.Tables() {
		if info.MaxVersion > of.MaxVersion && info.KeyCount > 20 {
			of = info
		}
	}
	return table.NewFilename(of.ID, db.Opts().Dir), of
}

// reopened closes a database and opens it again, so that none of its blocks is in a cache.
func reopened(t *testing.T, db *DB, f *findings) *DB {
	t.Helper()
	o := Options{Dir: db.Opts().Dir, MemTableSize: MinMemTableSize, Profile: State}
	o.Damaged = f.damaged
	mustClose(t, db)
	return openByHand(t, o)
}

// TestReaderFindsRot: a table rots while it is open, in one way or another. What a Reader says
// is right, or an error that names the table, which is looked into.
func TestReaderFindsRot(t *testing.T) {
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			f := new(findings)
			db := writeState(t, testOptions(t))
			want := newestValues(t, db)
			db = reopened(t, db, f)
			defer mustClose(t, db)
			path, info := newestTable(t, db)
			vfstest.Flip(t, path, harm)
			if n := answers(t, db, want); n == 0 || n == 600 {
				t.Errorf("%d of 600 keys are told to be damaged, want some", n)
			}
			err := db.Read(func(r Reader) error {
				return r.Scan(nil, nil, func(*badger.Item) (bool, error) { return true, nil })
			})
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(path)) {
				t.Errorf("Scan = %v, want that %s is damaged", err, filepath.Base(path))
			}
			for d := newDeadline(t); len(f.list()) == 0; {
				d.wait("somebody to be told")
			}
			got := f.list()[0]
			if got.File != table.IDToFilename(info.ID) || len(db.Upkeep().Damaged) != 1 {
				t.Errorf("told is %v, want %s", got, filepath.Base(path))
			}
		})
	}
}

// TestIndexCacheDropsOthers: what is used stays, as long as there is something else.
func TestIndexCacheDropsOthers(t *testing.T) {
	c := newIndexCache(100)
	index := func(n int) *tableIndex { return &tableIndex{raw: make([]byte, n)} }
	c.add(1, index(60))
	c.add(2, index(30))
	c.all[1].used.Store(true)
	c.add(3, index(40))
	if c.all[1] == nil || c.all[2] != nil || c.all[3] == nil || c.size != 100 {
		t.Errorf("kept are %v, %d bytes", c.all, c.size)
	}
	c.add(4, index(101))
	if c.all[4] != nil || c.size != 100 {
		t.Errorf("one that is too large: %v, %d bytes", c.all, c.size)
	}
	c.all[1].used.Store(true)
	c.all[3].used.Store(true)
	c.add(5, index(100))
	if len(c.all) != 1 || c.all[5] == nil || c.size != 100 {
		t.Errorf("one that fills it: %v, %d bytes", c.all, c.size)
	}
}

// BenchmarkReader is what a Reader costs beside Badger's own read: of a key that is in a table
// and none newer, of one that is absent, and of one that is in a memtable.
// So it does if its cache takes none of the indexes.
func BenchmarkReader(b *testing.B) {
	for name, limit := range map[string]int64{"indexes=kept": 8 << 20, "indexes=read": 0} {
		b.Run(name, func(b *testing.B) { benchmarkReader(b, limit) })
	}
}

func benchmarkReader(b *testing.B, indexes int64) {
	b.Helper()
	db := openByHand(b, Options{Dir: b.TempDir(), MemTableSize: 4 << 20, Profile: State})
	db.reads.indexes = newIndexCache(indexes)
	for range 3 {
		compressible(b, db, 4000)
	}
	awaitFlushes(b, db)
	err := db.Commit(func(txn *Txn) error {
		return txn.Set([]byte("newest"), make([]byte, 100))
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, info := range db.Tables() {
		b.Logf("table %d: %d bytes, %d of its index", info.ID, info.OnDiskSize, info.IndexSz)
	}
	table := func(i int) []byte { return fmt.Appendf(nil, "burst-%04d", i*37%4000) }
	for name, key := range map[string]func(i int) []byte{
		"table":    table,
		"absent":   func(i int) []byte { return append(table(i), 'x') },
		"memtable": func(int) []byte { return []byte("newest") },
	} {
		b.Run(name+"/badger", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				err := db.View(func(txn *badger.Txn) error {
					item, err := txn.Get(key(i))
					if errors.Is(err, badger.ErrKeyNotFound) {
						return nil
					}
					if err == nil {
						_, err = item.ValueCopy(nil)
					}
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/reader", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				err := db.Read(func(r Reader) error { _, err := r.Get(key(i)); return err })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}
