package badgerdb

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/google/go-cmp/cmp"
)

// TestReplayedPairsAreThoseInTables: when Badger merges tables of the first level into one
// of it, it puts all of that level into the order of their smallest keys.
func TestReplayedPairsAreThoseInTables(t *testing.T) {
	var want []string
	o := killed(t, valueOptions(t), func(db *DB) {
		db.room.leave() // so that no file is let go of
		for n := range 12 {
			put(t, db, "\x00a", fmt.Sprint(n)) // the smallest key of each table
			for m := range 100 {
				put(t, db, fmt.Sprintf("k-%02d-%02d", n, m), strings.Repeat("v", 10<<10))
			}
		}
		for d := newDeadline(t); len(db.Tables()) < 2; {
			d.wait("tables")
		}
		want = openContent(t, db)
	})
	mustClose(t, mustOpen(t, o))
	db := mustOpen(t, o)
	l0 := db.reads.levels[0]
	l0.lock.Lock()
	slices.SortFunc(*l0.tables, func(a, b *table.Table) int {
		return y.CompareKeys(a.Smallest(), b.Smallest())
	})
	t.Logf("%d tables", len(*l0.tables))
	l0.lock.Unlock()
	if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff[:min(len(diff), 1000)])
	}
	mustClose(t, db)
}
