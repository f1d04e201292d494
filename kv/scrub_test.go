package kv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestScrubFindsWhoHasLost: a table of the state is damaged of which nobody reads a key. The
// machines that have lost something with it say so, and nobody else.
func TestScrubFindsWhoHasLost(t *testing.T) {
	dir := t.TempDir()
	fill := func(s *Store) (machines []*Machine) {
		for g := raftyard.GroupID(1); g <= 3; g++ {
			machines = append(machines, openMachine(t, s, testReplica(g)))
		}
		return machines
	}
	s, err := OpenStore(StoreOptions{Dir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range fill(s) {
		var puts [][]byte
		for k := range 200 {
			value := fmt.Appendf(nil, "%d of %d, %x", k, i, k*7919+i)
			puts = append(puts, encodePut(fmt.Appendf(nil, "key-%03d", k), value, Cond{}))
		}
		apply(t, m, 1, puts...)
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTestStore(t, dir) // everything is in tables now
	machines := fill(s)
	for _, m := range machines {
		if err = errors.Join(s.Scrub(), m.Damage()); err != nil {
			t.Fatalf("before: %v", err)
		}
	}
	largest, size := "", int64(0)
	for _, path := range mustGlob(t, filepath.Join(dir, "state", "*.sst")) {
		info, serr := os.Stat(path)
		if serr != nil {
			t.Fatal(serr)
		}
		if info.Size() > size {
			largest, size = path, info.Size()
		}
	}
	// Items come first, by generations: this is one of the first machine's.
	f, err := os.OpenFile(largest, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("damage"), 200)
	if err = errors.Join(err, f.Close(), s.Scrub()); err != nil {
		t.Fatal(err)
	}
	if u := s.Upkeep(); len(u.Damaged) != 1 || u.Damaged[0].File != filepath.Base(largest) {
		t.Errorf("damaged are %v, want %s", u.Damaged, largest)
	}
	for i, m := range machines {
		if got := m.Damage(); errors.Is(got, ErrDamaged) != (i == 0) || i > 0 && got != nil {
			t.Errorf("machine %d: %v", i, got)
		}
	}
	again := machines[0]
	if err = again.Close(); err != nil {
		t.Fatal(err)
	}
	if m := openMachine(t, s, testReplica(1)); m.Damage() != nil {
		t.Error("a machine that was opened again is judged by what an earlier one had")
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	return paths
}
