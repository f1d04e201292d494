package kv

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// TestLostStoreRecordIsDamage: without it generations would be numbered from the
// beginning again, over items that are still there.
func TestLostStoreRecordIsDamage(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "state")
	s := openTestStore(t, parent)
	m := openMachine(t, s, testReplica(1))
	put := encodePut([]byte("old"), []byte("v"), Cond{})
	if _, err := m.Apply([]group.Command{{Index: 1, Data: put}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := badgerdb.Open(badgerdb.Options{Dir: dir, Profile: badgerdb.State})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Commit(func(txn *badgerdb.Txn) error {
		return errors.Join(txn.Delete(storeKey()), txn.Delete(generationKey(1)))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if again, err := OpenStore(StoreOptions{Dir: dir}); !errors.Is(err, ErrStoreDamaged) {
		t.Errorf("OpenStore = %v, want ErrStoreDamaged", err)
		if err == nil {
			_ = again.Close() // the test has failed already
		}
	}
}
