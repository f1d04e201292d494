package badgerdb

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/dgraph-io/badger/v4"
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
					err := db.View(func(txn *badger.Txn) error {
						item, err := txn.Get(key(i))
						if err != nil {
							return err
						}
						return item.Value(func(v []byte) error {
							if !bytes.Equal(v, value) {
								return fmt.Errorf("%d bytes, want %d", len(v), len(value))
							}
							return nil
						})
					})
					if err != nil {
						t.Fatalf("key %d: %v", i, err)
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
