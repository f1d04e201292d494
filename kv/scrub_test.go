package kv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

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
		apply(t, m, 1, manyPuts(i)...)
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
	// Items come first, by generations: this is one of the first machine's.
	largest := damageLargest(t, dir)
	if err = s.Scrub(); err != nil {
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
	if err = machines[0].Close(); err != nil {
		t.Fatal(err)
	}
	m := openMachine(t, s, testReplica(1))
	if !errors.Is(m.Damage(), ErrDamaged) {
		t.Errorf("a machine that is opened again has the same state, and says %v", m.Damage())
	}
	if err = m.Destroy(); err != nil {
		t.Fatal(err)
	}
	if m = openMachine(t, s, testReplica(1)); m.Damage() != nil {
		t.Errorf("a machine is judged by the state that was destroyed: %v", m.Damage())
	}
}

// TestRecheckWaitsForSnapshots: while as many snapshots are open as may be, a state is not read.
// It is as soon as that is over. Not for ever, and not longer than the store is open.
func TestRecheckWaitsForSnapshots(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	apply(t, m, 1, manyPuts(1)...)
	limit := int64(s.maxSnapshots)
	for _, tt := range []struct {
		name string
		then func(cancel func())
		want error
	}{
		{"closed", func(func()) { s.snapshots.Add(-limit) }, nil},
		{"store closes", func(cancel func()) { cancel() }, context.Canceled},
		{"stay open", func(func()) { time.Sleep(time.Hour) }, ErrTooManySnapshots},
	} {
		s.snapshots.Store(limit)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			read := make(chan error, 1)
			go func() { read <- m.recheck(ctx) }()
			time.Sleep(recheckPause * 3 / 2)
			select {
			case err := <-read:
				t.Errorf("%s: it did not wait: %v", tt.name, err)
				return
			default:
			}
			tt.then(cancel)
			if err := <-read; !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		})
		s.snapshots.Store(0)
	}
}

// TestCloseEndsScrub: also while a state that may be damaged is to be read.
func TestCloseEndsScrub(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(StoreOptions{Dir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, openMachine(t, s, testReplica(1)), 1, manyPuts(1)...)
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTestStore(t, dir)
	openMachine(t, s, testReplica(1))
	damageLargest(t, dir)
	s.snapshots.Add(int64(s.maxSnapshots))
	scrubbed := make(chan error, 1)
	go func() { scrubbed <- s.Scrub() }()
	for deadline := time.Now().Add(time.Minute); len(s.Upkeep().Damaged) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the damage is not found")
		}
		runtime.Gosched()
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}
	if err = <-scrubbed; err == nil {
		t.Error("Close has waited for the whole of Scrub")
	}
}

// manyPuts returns commands that fill some blocks.
func manyPuts(i int) (puts [][]byte) {
	for k := range 200 {
		value := fmt.Appendf(nil, "%d of %d, %x", k, i, k*7919+i)
		puts = append(puts, encodePut(fmt.Appendf(nil, "key-%03d", k), value, Cond{}))
	}
	return puts
}

// damageLargest changes the largest table of a store in its place, and returns its path.
func damageLargest(t *testing.T, dir string) string {
	t.Helper()
	largest, size := "", int64(0)
	for _, path := range mustGlob(t, filepath.Join(dir, "state", "*.sst")) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > size {
			largest, size = path, info.Size()
		}
	}
	f, err := os.OpenFile(largest, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("damage"), 200)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return largest
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	return paths
}
