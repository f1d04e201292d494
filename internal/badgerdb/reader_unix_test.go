//go:build unix

package badgerdb

import (
	"errors"
	"syscall"
	"testing"

	"github.com/dgraph-io/badger/v4/table"
)

// TestReaderOfLostPages: pages of a table that the disk does not give back would be the end of
// the process. Who reads them is told so instead.
func TestReaderOfLostPages(t *testing.T) {
	db := writeState(t, testOptions(t))
	want := newestValues(t, db)
	db = reopened(t, db, new(findings))
	defer mustClose(t, db)
	_, info := newestTable(t, db)
	var pages []byte
	err := db.reads.levels.each(span{first: newestOf(nil)}, 0, func(of *table.Table) error {
		if of.ID() == info.ID {
			pages = of.Data[:16<<10] // with blocks, and none of the index
		}
		return nil
	})
	if err == nil {
		err = syscall.Mprotect(pages, syscall.PROT_NONE)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := answers(t, db, want); n == 0 || n == 600 {
		t.Errorf("%d of 600 keys are told to be damaged, want some", n)
	}
	err = db.Read(func(r Reader) error { return r.Check([]byte("burst")) })
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("Check = %v", err)
	}
	if err := syscall.Mprotect(pages, syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	if n := answers(t, db, want); n != 0 {
		t.Errorf("%d keys are damaged though all pages are back", n)
	}
}
