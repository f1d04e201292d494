package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/internal/vfs/vfstest"
)

// inspect inspects a directory, which must be the same afterwards, and calls fn with it.
func inspect(t *testing.T, dir string, fn func(*Inspection)) {
	t.Helper()
	before := vfstest.Tree(t, dir)
	i, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	fn(i)
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, vfstest.Tree(t, dir)) {
		t.Error("the inspection has changed the directory")
	}
}

func TestInspectASoundStore(t *testing.T) {
	o := writeVictim(t)
	inspect(t, o.Dir, func(i *Inspection) {
		if len(i.Findings) != 0 || !i.Whole() || i.Noted != i.Newest || i.Identity.Boot != 1 {
			t.Errorf("found %+v, noted %d, newest %d, %+v",
				i.Findings, i.Noted, i.Newest, i.Identity)
		}
		if got := len(i.Replicas()); got != 3 {
			t.Errorf("%d replicas, want 3", got)
		}
		var got []string
		err := i.Entries(1, 0, 99, func(e *raftpb.Entry) error {
			got = append(got, fmt.Sprintf("%d.%d", e.GetTerm(), e.GetIndex()))
			return nil
		})
		if want := "1.5 1.6 1.7 2.8 2.9 2.10 2.11"; strings.Join(got, " ") != want || err != nil {
			t.Errorf("entries %v, %v, want %s", got, err, want)
		}
		if err := i.Entries(9, 0, 99, nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("entries of a group that is not there: %v", err)
		}
		hs := i.Log(2).HardState()
		if hs.GetTerm() != 3 || hs.GetCommit() != 9 {
			t.Errorf("hard state of group 2: %v", hs)
		}
	})
}

// TestInspectReadsALogOnce: a directory has thousands of logs, and what is asked may be of one.
func TestInspectReadsALogOnce(t *testing.T) {
	o := writeVictim(t)
	inspect(t, o.Dir, func(i *Inspection) {
		read := func() int64 { return i.store.stats.cacheMisses.Load() }
		if n := read(); n != 0 {
			t.Errorf("%d reads of logs before anybody asks for one", n)
		}
		odd := errors.New("odd")
		count := 0
		err := i.ReadLog(1, func(*raftpb.Entry) error { count++; return odd })
		if !errors.Is(err, odd) || count != 1 || read() == 0 || len(i.Findings) != 0 {
			t.Errorf("ReadLog = %v after %d entries and %d reads; found %v",
				err, count, read(), i.Findings)
		}
		before := read()
		if err := i.ReadLog(1, nil); err != nil || read() != before {
			t.Errorf("read again: %v", err)
		}
		if err := i.ReadLog(9, nil); err != nil {
			t.Errorf("ReadLog of a group that is not there = %v", err)
		}
	})
}

func TestInspectFindsDamage(t *testing.T) {
	path := func(o Options, name string) string { return filepath.Join(o.Dir, name) }
	tests := []struct {
		name   string
		damage func(*testing.T, Options)
		scope  Scope
		want   string
	}{
		{"a record", func(t *testing.T, o Options) {
			editLog(t, o, change(appendLogKey(nil, 1, 1), flip(-3)))
		}, ScopeReplica, "slot 1: checksum"},
		{"a slot missing", func(t *testing.T, o Options) {
			editLog(t, o, remove(appendLogKey(nil, 1, 1)))
		}, ScopeReplica, "entries 8 to 10 are missing"},
		{"a batch missing", func(t *testing.T, o Options) {
			n, err := openSequenceNote(vfs.OS{}, path(o, sequenceName), mustIdentity(t, o))
			if err == nil {
				err = errors.Join(n.write(n.noted+1), n.close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}, ScopeReplicas, "lost its newest"},
		{"no identity", func(t *testing.T, o Options) {
			must(t, os.Remove(path(o, IdentityName)))
		}, ScopeStore, "missing"},
		{"a bad identity", func(t *testing.T, o Options) {
			must(t, os.WriteFile(path(o, IdentityName), []byte("x"), 0o600))
		}, ScopeStore, "no identity"},
		{"no note", func(t *testing.T, o Options) {
			must(t, os.Remove(path(o, sequenceName)))
		}, ScopeStore, "missing"},
		{"an empty note", func(t *testing.T, o Options) {
			must(t, os.Truncate(path(o, sequenceName), 0))
		}, ScopeStore, "EOF"},
		{"no lock", func(t *testing.T, o Options) {
			must(t, os.Remove(path(o, LockName)))
			must(t, os.Mkdir(path(o, LockName), 0o750))
		}, ScopeStore, "no file"},
		{"no log", func(t *testing.T, o Options) {
			must(t, os.RemoveAll(path(o, logName)))
		}, ScopeStore, "missing"},
		{"another's log", func(t *testing.T, o Options) {
			other := writeVictim(t)
			must(t, os.RemoveAll(path(o, logName)))
			must(t, os.Rename(path(other, logName), path(o, logName)))
		}, ScopeStore, "another store"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := writeVictim(t)
			tt.damage(t, o)
			inspect(t, o.Dir, func(i *Inspection) {
				n := slices.IndexFunc(i.Findings, func(f Finding) bool {
					return f.Scope == tt.scope
				})
				if n < 0 || !strings.Contains(i.Findings[n].What, tt.want) {
					t.Fatalf("found %+v, want %q", i.Findings, tt.want)
				}
				if f := i.Findings[n]; f.Scope == ScopeReplica && f.Group != 1 {
					t.Errorf("found %+v, want group 1", f)
				}
				if tt.scope != ScopeStore && len(i.Findings) != 1 {
					t.Errorf("found %+v, want one", i.Findings)
				}
			})
			s, err := Open(o)
			if (err != nil) != (tt.scope == ScopeStore) {
				t.Errorf("Open = %v, the inspection says otherwise", err)
			}
			if err == nil {
				mustClose(t, s)
			}
		})
	}
}

func mustIdentity(t *testing.T, o Options) Identity {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(o.Dir, IdentityName))
	must(t, err)
	id, err := decodeIdentity(b)
	must(t, err)
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestInspectRefuses(t *testing.T) {
	if _, err := Inspect(t.TempDir()); !errors.Is(err, ErrNoStore) {
		t.Errorf("Inspect of an empty directory = %v, want ErrNoStore", err)
	}
	if _, err := Inspect(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrNoStore) {
		t.Errorf("Inspect of nothing = %v, want ErrNoStore", err)
	}
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	who := fmt.Sprint("process ", os.Getpid())
	if _, err := Inspect(o.Dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), who) {
		t.Errorf("Inspect of an open store = %v, want ErrLocked by %s", err, who)
	}
	mustClose(t, s)
	inspect(t, o.Dir, func(*Inspection) {
		if _, err := Open(o); !errors.Is(err, ErrLocked) {
			t.Errorf("Open during an inspection = %v, want ErrLocked", err)
		}
	})
	mustClose(t, mustOpen(t, o))
}

func TestInspectADirectoryThatIsBeingMade(t *testing.T) {
	o := testOptions(t.TempDir())
	id := Identity{Cluster: o.Cluster, Node: o.Node, Format: formatVersion}
	must(t, id.save(vfs.OS{}, o.Dir))
	inspect(t, o.Dir, func(i *Inspection) {
		if len(i.Findings) != 1 || i.Findings[0].Scope != ScopeNothing || i.Whole() {
			t.Errorf("found %+v, want that it is being made", i.Findings)
		}
	})
}

func TestCheckTerms(t *testing.T) {
	at := func(index uint64) []byte { return appendSnapshot(nil, snapshotAt(index, 1)) }
	tests := []struct {
		name string
		log  Log
		ok   bool
	}{
		{"empty", Log{terms: terms{{0, 0}}}, true},
		{"rising", Log{
			terms: terms{{4, 1}, {6, 3}}, last: 9, hard: hardState{true, 3, 0, 4}, snapshot: at(5),
		}, true},
		{"falling", Log{
			terms: terms{{4, 3}, {6, 1}}, last: 9, hard: hardState{true, 3, 0, 4},
		}, false},
		{"beyond the replica's", Log{
			terms: terms{{4, 1}, {6, 3}}, last: 9, hard: hardState{true, 2, 0, 4},
		}, false},
		{"snapshot before the start", Log{terms: terms{{4, 1}}, last: 9, snapshot: at(3)}, false},
		{"snapshot after the end", Log{terms: terms{{4, 1}}, last: 9, snapshot: at(10)}, false},
	}
	for i := range tests {
		tt := &tests[i]
		if err := tt.log.checkTerms(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	// It is part of what an inspection looks at.
	o := writeVictim(t)
	p := prefix{incarnation: testIncarnation, replica: 1, batch: 4, seq: 99}
	h := head{
		hard:  hardState{true, 1, 1, 9},
		start: 4, startTerm: 1, last: 11, metaSeq: 3, snapshotSeq: 2,
	}
	editLog(t, o, put(appendKey(nil, 1, kindHead), h.append(p.append(nil))))
	inspect(t, o.Dir, func(i *Inspection) {
		if !slices.ContainsFunc(i.Findings, func(f Finding) bool {
			return f.Group == 1 && strings.Contains(f.What, "has heard of term 1 only")
		}) {
			t.Errorf("found %+v, want the term of group 1", i.Findings)
		}
	})
}
