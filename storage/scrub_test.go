package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// said returns n entries from an index that say whose they are.
func said(g raftyard.GroupID, first, n, term uint64) []*raftpb.Entry {
	entries := entriesOf(first, n, term)
	for _, e := range entries {
		e.Data = fmt.Appendf(nil, "group %d term %d index %d.", g, term, e.GetIndex())
	}
	return entries
}

// writeAtRest opens a store in which the groups 1 to 3 are in tables. Entry 4 of group 3 was
// replaced since it was written.
func writeAtRest(t *testing.T) *Store {
	t.Helper()
	s := mustOpen(t, testOptions(t.TempDir()))
	for g := raftyard.GroupID(1); g <= 3; g++ {
		mustCommit(t, s, func(b *Batch) {
			u := Update{Meta: fmt.Appendf(nil, "meta of %d.", g), HardState: hardStateOf(1, 1, 0)}
			b.Create(testReplica(g), u)
			b.Update(g, Update{Entries: said(g, 1, 3, 1)})
		})
	}
	mustCommit(t, s, func(b *Batch) { b.Update(3, Update{Entries: said(3, 4, 1, 1)}) })
	mustCommit(t, s, func(b *Batch) {
		b.Update(3, Update{Entries: said(3, 4, 2, 2), HardState: hardStateOf(2, 1, 0)})
	})
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(9), Update{}) })
	for i := uint64(1); i <= 140; i++ { // push it out of memory
		mustCommit(t, s, func(b *Batch) {
			entries := entriesOf(i, 1, 1)
			entries[0].Data = make([]byte, 70_000)
			b.Update(9, Update{Entries: entries})
		})
	}
	return s
}

// flipAt changes one bit of what a table holds, when it does.
func flipAt(t *testing.T, s *Store, what string) (file string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		tables, err := filepath.Glob(filepath.Join(s.path(logName), "*.sst"))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%q is in none of %q: %v", what, tables, err)
		}
		for _, path := range tables {
			b, err := os.ReadFile(path)
			at := bytes.Index(b, []byte(what))
			if err != nil || at < 0 {
				continue
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte{b[at] ^ 1}, int64(at))
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			return filepath.Base(path)
		}
	}
}

// TestScrubFindsWhoHasLost: a table is damaged of which nobody reads a key. Who has lost
// something with it is known, and only they.
func TestScrubFindsWhoHasLost(t *testing.T) {
	for _, tt := range []struct {
		name, hit, want string
		group           raftyard.GroupID
	}{
		{"entry", "group 2 term 1 index 2.", "entries from 1", 2},
		{"meta", "meta of 2.", "record M", 2},
		{"replaced entry", "group 3 term 1 index 4.", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := writeAtRest(t)
			defer mustClose(t, s)
			if err := s.Scrub(); err != nil || len(s.TakeRotten()) != 0 {
				t.Fatalf("before: %v, %v", err, s.Upkeep())
			}
			file := flipAt(t, s, tt.hit)
			// A file is there a moment before its table is in use.
			for deadline := time.Now().Add(time.Minute); len(s.Upkeep().Damaged) == 0; {
				if err := s.Scrub(); err != nil || time.Now().After(deadline) {
					t.Fatalf("%s is no finding: %v", file, err)
				}
			}
			if u := s.Upkeep(); len(u.Damaged) != 1 || u.Damaged[0].File != file {
				t.Errorf("damaged are %v, want %s", u.Damaged, file)
			}
			rotten := s.TakeRotten()
			if tt.group == 0 {
				if len(rotten) != 0 {
					t.Errorf("nothing that counts was lost, but by %v", rotten)
				}
			} else if len(rotten) != 1 || rotten[0].Group != tt.group || rotten[0].ID != 1 ||
				!errors.Is(rotten[0].Err, ErrDamaged) ||
				!strings.Contains(rotten[0].Err.Error(), tt.want) {
				t.Errorf("rotten are %v, want group %d: %s", rotten, tt.group, tt.want)
			}
			for g := raftyard.GroupID(1); g <= 3; g++ {
				if out := s.Log(g) == nil; out != (g == tt.group) {
					t.Errorf("group %d is out of service: %t", g, out)
				}
			}
			if again := s.TakeRotten(); len(again) != 0 {
				t.Errorf("told twice: %v", again)
			}
		})
	}
}

// TestScrubOfAClosedStore is an error, as that of one that is being closed.
func TestScrubOfAClosedStore(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	mustClose(t, s)
	if err := s.Scrub(); err == nil {
		t.Error("a closed store was read")
	}
}

// TestWhatSaysNothingCondemnsNobody: a log that cannot be read for want of something else is
// not damaged.
func TestWhatSaysNothingCondemnsNobody(t *testing.T) {
	l := &Log{group: 7}
	for _, tt := range []struct {
		err     error
		damaged bool
	}{
		{err: syscall.EMFILE},
		{err: ErrClosed},
		{err: fmt.Errorf("%w: a page", badgerdb.ErrDamaged), damaged: true},
		{err: fmt.Errorf("%w: a record", ErrDamaged), damaged: true},
	} {
		got := l.lost(tt.err)
		if errors.Is(got, ErrDamaged) != tt.damaged || !errors.Is(got, tt.err) ||
			!strings.Contains(got.Error(), "group 7") {
			t.Errorf("%v becomes %v, want that it is damage: %t", tt.err, got, tt.damaged)
		}
	}
}
