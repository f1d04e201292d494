package badgerdb

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSmallerMemtablesAfterAKill opens what a process with large memtables has left with small
// ones: Badger would end the process, since the log does not fit into one. After that the small
// ones are what there is.
func TestSmallerMemtablesAfterAKill(t *testing.T) {
	for _, tt := range []struct {
		name          string
		count, length int
	}{
		{"long values", 70, 100 << 10},
		{"short values", 30_000, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value := bytes.Repeat([]byte("v"), tt.length)
			key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
			o := killed(t, Options{Dir: t.TempDir(), MemTableSize: 8 << 20}, func(db *DB) {
				for i := 0; i < tt.count; {
					err := db.Commit(func(txn *Txn) error {
						for begin := i; i < tt.count && i < begin+1+1000/tt.length*10; i++ {
							if err := txn.Set(key(i), value); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
			})
			o.MemTableSize = MinMemTableSize
			for _, again := range []bool{false, true} {
				db := mustOpen(t, o)
				if got := db.Opts().MemTableSize; again != (got == o.MemTableSize) {
					t.Errorf("memtables of %d bytes, opened once more: %t", got, again)
				}
				for i := range tt.count {
					if got := get(t, db, string(key(i))); got != string(value) {
						t.Fatalf("key %d: %d bytes, want %d", i, len(got), len(value))
					}
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestSameMemtablesAfterAKill opens what a kill has left as it was opened before: memtables stay
// as large as they were asked to be.
func TestSameMemtablesAfterAKill(t *testing.T) {
	for _, length := range []int{10, 1000} {
		o := killed(t, Options{Dir: t.TempDir(), MemTableSize: 2 << 20}, func(db *DB) {
			first := db.wal.active()
			for i := 0; db.wal.active() == first; i++ { // a whole log
				err := db.Commit(func(txn *Txn) error {
					for j := range 100 {
						err := txn.Set(fmt.Appendf(nil, "%08d", i*100+j), make([]byte, length))
						if err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		db := mustOpen(t, o)
		if got := db.Opts().MemTableSize; got != o.MemTableSize {
			t.Errorf("memtables of %d bytes, want %d as before", got, o.MemTableSize)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemtablesOfOtherSizes opens a database again and again, each time with memtables of another
// size after a kill: files of the journal, used and spare, are as large as those of before.
func TestMemtablesOfOtherSizes(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	value := bytes.Repeat([]byte("v"), 60_000)
	var want []string
	n := 0
	for _, mib := range []int64{4, 1, 8, 2, 1, 4} {
		o.MemTableSize = mib << 20
		o = killed(t, o, func(db *DB) {
			if got := openContent(t, db); !slices.Equal(got, want) {
				t.Errorf("with %d MiB: it holds other things: %s", mib, cmp.Diff(want, got))
			}
			begun := db.journal.id
			for db.journal.id < begun+3 { // files are full, and begin to be used again
				n++
				put(t, db, fmt.Sprint("key-", n%150), fmt.Sprint(n, string(value)))
				if n%10 == 0 {
					err := db.Commit(func(txn *Txn) error {
						return txn.Delete(fmt.Appendf(nil, "key-%d", n*7%150))
					})
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			want = openContent(t, db)
		})
		checkContent(t, fmt.Sprintf("killed with %d MiB", mib), o, want)
	}
}
