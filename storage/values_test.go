package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// long returns an entry that makes a record which stays in the journal.
func long(g raftyard.GroupID, index uint64, of byte) []*raftpb.Entry {
	entries := said(g, index, 1, 1)
	entries[0].Data = append(entries[0].Data, strings.Repeat(string(of), 3000)...)
	return entries
}

// writeLong makes a store with the records of groups 1 to 3 in files of values, those of group 2
// in one of their own, and closes it. It returns the path of that.
func writeLong(t *testing.T) (o Options, path string) {
	t.Helper()
	o = testOptions(t.TempDir())
	files := func() []string {
		names, err := filepath.Glob(filepath.Join(o.Dir, logName, "*.val"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	for g := raftyard.GroupID(1); g <= 3; g++ {
		before := files()
		s := mustOpen(t, o)
		mustCommit(t, s, func(b *Batch) {
			b.Create(testReplica(g), Update{HardState: hardStateOf(1, 1, 0)})
			b.Update(g, Update{Entries: long(g, 1, 'v')})
		})
		mustCommit(t, s, func(b *Batch) { b.Update(g, Update{Entries: long(g, 2, 'w')}) })
		mustClose(t, s)
		made := slices.DeleteFunc(files(), func(path string) bool {
			return slices.Contains(before, path)
		})
		if len(made) != 1 {
			t.Fatalf("files of group %d: %q", g, made)
		}
		if g == 2 {
			path = made[0]
		}
	}
	return o, path
}

var lostRecords = map[string]func(path string) error{ //nolint:gochecknoglobals // a constant
	"missing":   os.Remove,
	"empty":     func(path string) error { return os.Truncate(path, 0) },
	"truncated": func(path string) error { return os.Truncate(path, 4000) },
	"flipped": func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[bytes.Index(b, []byte("wwww"))+100] ^= 1
		return os.WriteFile(path, b, 0o600)
	},
}

// lostText is what is said then, beside the name of the file.
var lostText = map[string]string{ //nolint:gochecknoglobals // a constant
	"missing": "is missing", "empty": "is shorter", "truncated": "is shorter",
	"flipped": "something else in place",
}

// checkOnly checks that group 2 is damaged, that what is said about it has all of the words, and
// that no other one is.
func checkOnly(t *testing.T, s *Store, words ...string) {
	t.Helper()
	for g := raftyard.GroupID(1); g <= 3; g++ {
		r, _ := s.Replica(g)
		if damaged := r.Damage != nil; damaged != (g == 2) ||
			damaged && !errors.Is(r.Damage, ErrDamaged) {
			t.Errorf("group %d: %v", g, r.Damage)
		}
		if g == 2 {
			checkSays(t, fmt.Sprint(r.Damage), words)
			continue
		}
		entries, err := s.Log(g).Entries(1, 3, 1<<30)
		if err != nil || len(entries) != 2 {
			t.Errorf("group %d has %d entries, %v", g, len(entries), err)
		}
	}
}

func checkSays(t *testing.T, text string, words []string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

// TestStartFindsLostRecords: records that are not in their file any more are damage of the replica
// that they are of.
func TestStartFindsLostRecords(t *testing.T) {
	for name, harm := range lostRecords {
		t.Run(name, func(t *testing.T) {
			o, path := writeLong(t)
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, o)
			defer mustClose(t, s)
			checkOnly(t, s, filepath.Base(path), lostText[name], "record in slot")
			mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: long(1, 3, 'x')}) })
		})
	}
}

// TestScrubFindsLostRecords: so are those of which nobody reads anything. A file that was only
// deleted can still be read by who has it open: nothing of it is lost.
func TestScrubFindsLostRecords(t *testing.T) {
	for name, harm := range lostRecords {
		t.Run(name, func(t *testing.T) {
			o, path := writeLong(t)
			s := mustOpen(t, o)
			defer mustClose(t, s)
			if err := errors.Join(harm(path), s.Scrub()); err != nil {
				t.Fatal(err)
			}
			rotten := s.TakeRotten()
			if name == "missing" {
				if len(rotten) != 0 || s.Log(2) == nil || len(s.Upkeep().Damaged) != 0 {
					t.Errorf("rotten are %v, damaged %v", rotten, s.Upkeep().Damaged)
				}
				return
			}
			if len(rotten) != 1 || rotten[0].Group != 2 || !errors.Is(rotten[0].Err, ErrDamaged) {
				t.Errorf("rotten are %v, want group 2", rotten)
			}
			checkOnly(t, s, filepath.Base(path), lostText[name], "entries from")
			if u := s.Upkeep(); len(u.Damaged) != 1 || u.Damaged[0].File != filepath.Base(path) {
				t.Errorf("damaged are %v, want %s", u.Damaged, path)
			}
		})
	}
}

// TestInspectNamesLostRecords: who only looks says which file it is, as a start does.
func TestInspectNamesLostRecords(t *testing.T) {
	for name, harm := range lostRecords {
		t.Run(name, func(t *testing.T) {
			o, path := writeLong(t)
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			i, err := Inspect(o.Dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := i.Close(); err != nil {
					t.Error(err)
				}
			}()
			if f := i.Findings; len(f) != 1 || f[0].Scope != ScopeReplica || f[0].Group != 2 {
				t.Fatalf("findings are %+v, want one of group 2", f)
			}
			checkSays(t, i.Findings[0].What, []string{filepath.Base(path), lostText[name]})
		})
	}
}

// TestDirectoryInPlaceOfRecords: something else in the place of a file of values is nothing that
// a crash leaves. The store does not open, and says which it is.
func TestDirectoryInPlaceOfRecords(t *testing.T) {
	o, path := writeLong(t)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	s, err := Open(o)
	if err == nil {
		mustClose(t, s)
	}
	if !errors.Is(err, ErrDamaged) {
		t.Fatalf("opened: %v, want %v", err, ErrDamaged)
	}
	checkSays(t, err.Error(), []string{filepath.Base(path), "is no file"})
}
