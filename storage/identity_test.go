package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/internal/vfs"
)

func TestDirectoryThatIsNotOursIsRefused(t *testing.T) {
	remove := func(name string) func(*testing.T, *Options) {
		return func(t *testing.T, o *Options) {
			if err := os.RemoveAll(filepath.Join(o.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rewrite := func(name string, fn func(string) string) func(*testing.T, *Options) {
		return func(t *testing.T, o *Options) {
			path := filepath.Join(o.Dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err = os.WriteFile(path, []byte(fn(string(b))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	foreign := func(name string) func(*testing.T, *Options) {
		return func(t *testing.T, o *Options) {
			other := writeVictim(t)
			if err := errors.Join(os.RemoveAll(filepath.Join(o.Dir, name)),
				os.Rename(filepath.Join(other.Dir, name), filepath.Join(o.Dir, name))); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty := func(string) string { return "" }
	tests := []struct {
		name   string
		change func(*testing.T, *Options)
		want   error
		text   string
	}{
		{
			"another cluster", func(_ *testing.T, o *Options) { o.Cluster = uuid.UUID{1} },
			ErrWrongCluster, "cluster",
		},
		{"another node", func(_ *testing.T, o *Options) { o.Node = 2 }, ErrWrongNode, "node 1"},
		{
			"newer format", rewrite(IdentityName, func(s string) string {
				return strings.Replace(s, "format  3", "format  4", 1)
			}), ErrFormat, "use the newer version",
		},
		{
			"edited identity", rewrite(IdentityName, func(s string) string {
				return strings.Replace(s, "node    1", "node    2", 1)
			}), ErrDamaged, "checksum",
		},
		{"empty identity", rewrite(IdentityName, empty), ErrDamaged, IdentityName},
		{"identity missing", remove(IdentityName), ErrIncomplete, IdentityName},
		{"log missing", remove(logName), ErrIncomplete, logName},
		{"note missing", remove(sequenceName), ErrIncomplete, sequenceName},
		{"empty note", rewrite(sequenceName, empty), ErrDamaged, sequenceName},
		{
			"garbled note", rewrite(sequenceName, func(s string) string {
				return strings.Repeat("x", len(s))
			}), ErrDamaged, "no readable note",
		},
		{"note of another store", foreign(sequenceName), ErrDamaged, "mixed up"},
		{"log of another store", foreign(logName), ErrDamaged, "mixed up"},
		{"MANIFEST missing", remove(logName + "/MANIFEST"), ErrDamaged, "MANIFEST"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := writeVictim(t)
			tt.change(t, &o)
			s, err := Open(o)
			if err == nil {
				mustClose(t, s)
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Open = %v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
}

// TestStartsAreKept: those that are presented are, and those in between are counted only.
func TestStartsAreKept(t *testing.T) {
	o := testOptions(t.TempDir())
	var want []lineage.Start
	for boot := uint64(1); boot <= 5; boot++ {
		s := mustOpen(t, o)
		if boot%2 == 1 {
			id, err := s.Present(lineage.Start{})
			last := id.Starts.Last()
			if err != nil || id.Boot != boot || last.Boot != boot || last.Process == uuid.Nil {
				t.Fatalf("Present = %+v, %v", id, err)
			}
			want = append(want, last)
		}
		got := s.Identity().Starts
		if got.Since != 1 || !slices.Equal(got.Starts, want) {
			t.Errorf("start %d has %+v, want %+v", boot, got, want)
		}
		mustClose(t, s)
	}
}

// TestIdentityOfFormat1 opens a directory of a release that kept no starts: they are kept
// from the next one on.
func TestIdentityOfFormat1(t *testing.T) {
	o := writeVictim(t)
	path := filepath.Join(o.Dir, IdentityName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	id, err := decodeIdentity(b)
	if err != nil {
		t.Fatal(err)
	}
	id.Format, id.Boot, id.Starts = 1, 7, lineage.Lineage{}
	if err = os.WriteFile(path, id.encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, o)
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	id, err = s.Present(lineage.Start{})
	if err != nil || id.Format != formatVersion || id.Starts.Since != 8 ||
		id.Starts.Last().Boot != 9 {
		t.Errorf("Present = %+v, %v, want starts since start 8", id, err)
	}
}

func TestHalfOfTheNoteIsEnough(t *testing.T) {
	for place := range int64(2) {
		o := writeVictim(t)
		f, err := os.OpenFile(filepath.Join(o.Dir, sequenceName), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte("torn"), place*notePlace)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		s := mustOpen(t, o)
		if r, _ := s.Replica(1); r.Damage != nil {
			t.Error(r.Damage)
		}
		mustClose(t, s)
	}
}

func TestStoreIsOpenOnce(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	_, err := Open(o)
	who := fmt.Sprint("process ", os.Getpid())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), who) {
		t.Errorf("second Open = %v, want ErrLocked with the process", err)
	}
	if err := commit(s, func(b *Batch) { b.Create(testReplica(1), Update{}) }); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
	mustClose(t, s)
	mustClose(t, s) // again does no harm
	if err := commit(s, func(b *Batch) { b.Update(1, Update{}) }); !errors.Is(err, ErrClosed) {
		t.Errorf("Commit after Close = %v, want ErrClosed", err)
	}
}

func TestInterruptedMakingBeginsAgain(t *testing.T) {
	full := testOptions(t.TempDir())
	mustClose(t, mustOpen(t, full))
	id := Identity{Cluster: testCluster, Node: 1, Store: uuid.UUID{9}, Format: formatVersion}
	for _, parts := range [][]string{nil, {sequenceName}, {sequenceName, logName}} {
		o := testOptions(t.TempDir())
		if err := id.save(vfs.OS{}, o.Dir); err != nil {
			t.Fatal(err)
		}
		for _, name := range parts {
			from, to := filepath.Join(full.Dir, name), filepath.Join(o.Dir, name)
			if err := copyDir(from, to); err != nil {
				t.Fatal(err)
			}
		}
		s := mustOpen(t, o)
		if got := s.Identity(); got.Store != id.Store || got.Boot != 1 {
			t.Errorf("with %v: identity %+v", parts, got)
		}
		mustClose(t, s)
	}
}

func TestOptionsAreAllReported(t *testing.T) {
	_, err := Open(Options{CacheBytes: -1, MemTableSize: 5})
	for _, field := range []string{"Dir", "Cluster", "Node", "CacheBytes", "MemTableSize"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Open = %v, want it to name %s", err, field)
		}
	}
}

func TestNoSpaceIsTold(t *testing.T) {
	if !errors.Is(fmt.Errorf("x: %w", badgerdb.ErrNoSpace), ErrNoSpace) {
		t.Error("ErrNoSpace is not the one of badgerdb")
	}
}
