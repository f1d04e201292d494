package kv

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// writeImage makes a store with replicas of groups 1 and 2, and returns its directory and
// the hashes of their contents.
func writeImage(t *testing.T) (dir string, hashes [][]byte) {
	t.Helper()
	parent := t.TempDir()
	s := openTestStore(t, parent)
	for g := raftyard.GroupID(1); g <= 2; g++ {
		m := openMachine(t, s, testReplica(g))
		apply(t, m, 1, put("a", "1"), put("b", "2"), put("a", "3"), del("b"))
		apply(t, m, 5, put(fmt.Sprint("c", g), "4"))
		hashes = append(hashes, hashOf(t, m))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, "state"), hashes
}

func openImage(t *testing.T, dir string) *StoreImage {
	t.Helper()
	s, found, err := OpenImage(dir)
	if err != nil || s == nil || len(found) > 0 {
		t.Fatalf("OpenImage: %v, %v", found, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestImageShowsTheStore(t *testing.T) {
	dir, hashes := writeImage(t)
	s := openImage(t, dir)
	if damaged, left, err := s.Check(); len(damaged)+len(left) > 0 || err != nil {
		t.Errorf("Check = %q, %q, %v, want nothing", damaged, left, err)
	}
	replicas, err := s.Replicas()
	if err != nil || len(replicas) != 2 {
		t.Fatalf("Replicas = %v, %v, want 2", replicas, err)
	}
	for i := range replicas {
		r := &replicas[i]
		if r.Applied != 5 || r.Items != 2 || r.Damage != nil || !bytes.Equal(r.Hash, hashes[i]) {
			t.Errorf("replica %+v, want applied 5, 2 items and hash %x", r, hashes[i])
		}
		var got []string
		err := s.Items(r, func(it ListItem) error {
			got = append(got, fmt.Sprintf("%s=%s@%d", it.Key, it.Data, it.Revision))
			return nil
		})
		want := fmt.Sprintf("a=3@3 c%d=4@5", r.Replica.Group)
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("Items = %q, %v, want %s", got, err, want)
		}
	}
}

func TestImageFindsDamage(t *testing.T) {
	key := machineKey(testReplica(1))
	item := itemKey(1, []byte("a"))
	type edit func(badgerdb.Reader, *badgerdb.Txn) error
	change := func(k []byte) edit {
		return func(at badgerdb.Reader, txn *badgerdb.Txn) error {
			b, err := at.Get(k)
			if err != nil {
				return err
			}
			b[len(b)-1] ^= 1
			return txn.Set(k, b)
		}
	}
	remove := func(k []byte) edit {
		return func(_ badgerdb.Reader, txn *badgerdb.Txn) error { return txn.Delete(k) }
	}
	tests := []struct {
		name   string
		edit   edit
		damage string // of group 1
		store  string // of the store
		left   string
	}{
		{
			name: "replica's record", edit: change(key), damage: "checksum",
			left: "which no record names",
		},
		{name: "item", edit: change(item), damage: "checksum"},
		{name: "item missing", edit: remove(item), damage: "record says 2 of"},
		{
			name: "generation missing", edit: remove(generationKey(1)), damage: "missing",
			left: "2 items of generation 1",
		},
		{
			name: "generation", edit: change(generationKey(1)), damage: "checksum",
			store: "checksum",
		},
		{name: "store's record", edit: change(storeKey()), store: "checksum"},
		{name: "no store's record", edit: remove(storeKey()), store: "missing"},
		{name: "stray", edit: func(_ badgerdb.Reader, txn *badgerdb.Txn) error {
			return txn.Set(itemKey(77, []byte("x")), []byte("y"))
		}, left: "1 items of generation 77"},
		{name: "beyond", edit: func(_ badgerdb.Reader, txn *badgerdb.Txn) error {
			return txn.Set(generationKey(1<<40), []byte("y"))
		}, store: "never given out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := writeImage(t)
			db, err := badgerdb.Open(badgerdb.Options{Dir: dir, Profile: badgerdb.State})
			if err != nil {
				t.Fatal(err)
			}
			err = db.Read(func(at badgerdb.Reader) error {
				return db.Commit(func(txn *badgerdb.Txn) error { return tt.edit(at, txn) })
			})
			if err = errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			s := openImage(t, dir)
			damaged, left, err := s.Check()
			if err != nil {
				t.Fatal(err)
			}
			hold(t, "damaged", strings.Join(damaged, "; "), tt.store)
			hold(t, "left", strings.Join(left, "; "), tt.left)
			replicas, err := s.Replicas()
			if err != nil {
				t.Fatal(err)
			}
			for i := range replicas {
				r := &replicas[i]
				err := s.Items(r, func(ListItem) error { return nil })
				want := ""
				if r.Replica.Group == 1 {
					want = tt.damage
				}
				text := ""
				if err != nil {
					text = err.Error()
				}
				hold(t, fmt.Sprint("group ", r.Replica.Group), text, want)
			}
		})
	}
}

// hold checks that a text has a part in it, or is empty if that is.
func hold(t *testing.T, what, text, part string) {
	t.Helper()
	if (text == "") != (part == "") || !strings.Contains(text, part) {
		t.Errorf("%s: %q, want %q", what, text, part)
	}
}

func TestImageOfAStoreInUse(t *testing.T) {
	parent := t.TempDir()
	s := openTestStore(t, parent)
	if _, _, err := OpenImage(filepath.Join(parent, "state")); !errors.Is(err, ErrLocked) {
		t.Errorf("OpenImage = %v, want ErrLocked", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
