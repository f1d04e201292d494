package kv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDamagedStoreIsSetAside(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "state")
	damage := func() {
		t.Helper()
		s := openTestStore(t, parent)
		apply(t, openMachine(t, s, testReplica(1)), 1, put("k", "v"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "MANIFEST"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenStore(StoreOptions{Dir: dir}); !errors.Is(err, ErrStoreDamaged) {
			t.Fatalf("OpenStore = %v, want ErrStoreDamaged", err)
		}
	}
	damage()
	aside, err := SetAside(dir + "/")
	if err != nil || aside != AsideDir(dir) {
		t.Fatalf("SetAside = %s, %v, want %s", aside, err, AsideDir(dir))
	}
	if _, err := os.Stat(filepath.Join(aside, "MANIFEST")); err != nil {
		t.Error(err)
	}
	s := openTestStore(t, parent)
	if m := openMachine(t, s, testReplica(1)); m.Revision() != 0 {
		t.Errorf("the new store has something in it: revision %d", m.Revision())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage()
	if _, err := SetAside(dir); !errors.Is(err, ErrAside) {
		t.Errorf("SetAside for the second time = %v, want ErrAside", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("SetAside has moved it all the same: %v", err)
	}
	if err := os.RemoveAll(aside); err != nil {
		t.Fatal(err)
	}
	if _, err := SetAside(dir); err != nil {
		t.Error(err)
	}
	if _, err := SetAside(filepath.Join(parent, "none")); err == nil {
		t.Error("SetAside of nothing succeeds")
	}
}
