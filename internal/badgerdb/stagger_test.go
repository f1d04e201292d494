package badgerdb

import (
	"slices"
	"testing"
)

// TestStaggered: the memtables of databases with numbers that follow each other differ, by at least
// a twentieth for three, and a transaction may hold the same in all.
func TestStaggered(t *testing.T) {
	o := testOptions(t)
	plain := mustOpen(t, o)
	bytes, count := plain.MaxTxnBytes(), plain.MaxTxnCount()
	if got, want := bytes, plain.MaxBatchSize()-128; got != want {
		t.Errorf("a transaction may hold %d bytes, want %d", got, want)
	}
	if got, want := count, plain.MaxBatchCount()-2; got != want {
		t.Errorf("a transaction may hold %d pairs, want %d", got, want)
	}
	mustClose(t, plain)

	var sizes []int64
	for o.Stagger = 1; o.Stagger <= 3; o.Stagger++ {
		db := mustOpen(t, o)
		size := db.Opts().MemTableSize
		if size < o.MemTableSize || size > o.MemTableSize*5/4 {
			t.Errorf("memtables of %d bytes, want %d to a quarter more", size, o.MemTableSize)
		}
		sizes = append(sizes, size)
		if db.MaxTxnBytes() != bytes || db.MaxTxnCount() != count {
			t.Errorf("a transaction may hold %d bytes and %d pairs, want %d and %d",
				db.MaxTxnBytes(), db.MaxTxnCount(), bytes, count)
		}
		fillTables(t, db)
		mustClose(t, db)
	}
	slices.Sort(sizes)
	for i := range sizes[1:] {
		if sizes[i+1]-sizes[i] < o.MemTableSize/20 {
			t.Errorf("memtables of %d bytes are too much alike", sizes)
		}
	}
}
