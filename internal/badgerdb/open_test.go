package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// killed returns the directory that a kill would leave, of a database for which
// fill was called. What fill wrote last is the newest in the log.
func killed(t *testing.T, o Options, fill func(*DB)) Options {
	t.Helper()
	db := mustOpen(t, o)
	fill(db)
	to := filepath.Join(t.TempDir(), "killed")
	for {
		before := listing(t, o.Dir)
		if err := os.CopyFS(to, os.DirFS(o.Dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if listing(t, o.Dir) == before {
			break
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	o.Dir = to
	return o
}

// copied returns the options of a copy of a database that is not open.
func copied(t *testing.T, o Options) Options {
	t.Helper()
	to := filepath.Join(t.TempDir(), "db")
	if err := os.CopyFS(to, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	o.Dir = to
	return o
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "MANIFEST"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%q %x", names, manifest)
}

// lastLog returns the path of the newest file of the journal.
func lastLog(t *testing.T, o Options) string {
	t.Helper()
	return slices.Max(slices.DeleteFunc(glob(t, o, "*"+journalExt), func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() == 0
	}))
}

func glob(t *testing.T, o Options, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.Dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	slices.Sort(names)
	return names
}

func edit(t *testing.T, path string, fn func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fn(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// entryOf returns where the log holds the value.
func entryOf(t *testing.T, b []byte, value string) int {
	t.Helper()
	at := bytes.Index(b, []byte(value))
	if at < 0 {
		t.Fatalf("the log does not hold %q", value)
	}
	return at
}

func TestDamagedFilesAreRefused(t *testing.T) {
	// Keys k0 to k9 in one transaction each, from 2 on (1 lays the last level);
	// the last is of several keys.
	few := func(db *DB) {
		for i := range 10 {
			put(t, db, fmt.Sprint("k", i), fmt.Sprint("value-", i))
		}
		err := db.Commit(func(txn *Txn) error {
			return errors.Join(
				txn.Set([]byte("l1"), []byte("last-1")), txn.Set([]byte("l2"), []byte("last-2")))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	flip := func(value string) func(*testing.T, Options) {
		return func(t *testing.T, o Options) {
			edit(t, lastLog(t, o), func(b []byte) []byte {
				b[entryOf(t, b, value)] ^= 1
				return b
			})
		}
	}
	tests := []struct {
		name   string
		fill   func(*DB)
		damage func(*testing.T, Options)
		want   error
		text   string
	}{
		{"nothing", few, func(*testing.T, Options) {}, nil, "value-9"},
		{"bit in the middle of the log", few, flip("value-5"), ErrDamaged, "transaction 8 follows"},
		{"bit in the first entry", few, flip("value-0"), ErrDamaged, "follows"},
		{"bit in the last but one", few, flip("value-9"), ErrDamaged, "transaction 12 follows"},
		{"bit in the last", few, flip("last-1"), nil, "value-9"},
		{
			"log cut off", few, func(t *testing.T, o Options) {
				edit(t, lastLog(t, o), func(b []byte) []byte {
					return b[:entryOf(t, b, "last-")+2]
				})
			}, nil, "value-9",
		},
		{
			"zeros in the middle", few, func(t *testing.T, o Options) {
				edit(t, lastLog(t, o), func(b []byte) []byte {
					at := entryOf(t, b, "value-4")
					clear(b[at-30 : at+30])
					return b
				})
			}, ErrDamaged, "follows",
		},
		{
			"garbage behind the end", few, func(t *testing.T, o Options) {
				edit(t, lastLog(t, o), func(b []byte) []byte {
					at := entryOf(t, b, "last-2") + 200
					copy(b[at:], bytes.Repeat([]byte{0x40, 0, 12, 5, 0, 'x'}, 5000))
					return b
				})
			}, nil, "value-9",
		},
		{
			"header of the log cut off", few, func(t *testing.T, o Options) {
				edit(t, lastLog(t, o), func(b []byte) []byte { return b[:7] })
			}, ErrDamaged, "header",
		},
		{
			"MANIFEST missing", few, func(t *testing.T, o Options) {
				if err := os.Remove(filepath.Join(o.Dir, "MANIFEST")); err != nil {
					t.Fatal(err)
				}
			}, ErrDamaged, "MANIFEST is missing",
		},
		{
			"empty log and value log", few, func(t *testing.T, o Options) {
				for _, name := range []string{"00099.mem", "000099.vlog"} {
					if err := os.WriteFile(filepath.Join(o.Dir, name), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}, nil, "value-9",
		},
		{
			"empty key registry", few, func(t *testing.T, o Options) {
				edit(t, filepath.Join(o.Dir, "KEYREGISTRY"), func([]byte) []byte { return nil })
			}, nil, "value-9",
		},
		{
			"log of another name", few, func(t *testing.T, o Options) {
				path := filepath.Join(o.Dir, "x.mem")
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}, ErrDamaged, "x.mem",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := killed(t, testOptions(t), tt.fill)
			tt.damage(t, o)
			db, err := Open(o)
			if tt.want != nil {
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("Open = %v, want %v with %q", err, tt.want, tt.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := get(t, db, "k9"); got != tt.text {
				t.Errorf("k9 = %s, want %s", got, tt.text)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// fillTables writes so much that there are tables.
func fillTables(t *testing.T, db *DB) {
	t.Helper()
	value := strings.Repeat("v", 10_000)
	for i := range 300 {
		put(t, db, fmt.Sprintf("key-%04d", i), fmt.Sprint(i, value))
	}
}

func TestDamagedTablesAreRefused(t *testing.T) {
	whole := testOptions(t)
	db := mustOpen(t, whole)
	fillTables(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	table := func(fn func([]byte) []byte) func(*testing.T, Options) {
		return func(t *testing.T, o Options) { edit(t, glob(t, o, "*.sst")[0], fn) }
	}
	tests := []struct {
		name   string
		damage func(*testing.T, Options)
	}{
		{"bit in the first block", table(func(b []byte) []byte { b[20] ^= 1; return b })},
		{"bit in the middle", table(func(b []byte) []byte { b[len(b)/2] ^= 1; return b })},
		{"bit in the index", table(func(b []byte) []byte { b[len(b)-60] ^= 1; return b })},
		{"zeros", table(func(b []byte) []byte { clear(b); return b })},
		{"cut in half", table(func(b []byte) []byte { return b[:len(b)/2] })},
		{"empty", table(func([]byte) []byte { return nil })},
		{"missing", func(t *testing.T, o Options) {
			if err := os.Remove(glob(t, o, "*.sst")[0]); err != nil {
				t.Fatal(err)
			}
		}},
		{"MANIFEST flipped", func(t *testing.T, o Options) {
			path := filepath.Join(o.Dir, "MANIFEST")
			edit(t, path, func(b []byte) []byte { b[20] ^= 1; return b })
		}},
		{"MANIFEST without its end", func(t *testing.T, o Options) {
			edit(t, filepath.Join(o.Dir, "MANIFEST"), func(b []byte) []byte { return b[:len(b)-3] })
		}},
		{"MANIFEST empty", func(t *testing.T, o Options) {
			edit(t, filepath.Join(o.Dir, "MANIFEST"), func([]byte) []byte { return nil })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := copied(t, whole)
			tt.damage(t, o)
			db, err := Open(o)
			if err == nil {
				t.Errorf("opened, with %d tables", len(db.Tables()))
				err = db.Close()
			}
			t.Log(err)
		})
	}
}

func TestGapBetweenLogsIsRefused(t *testing.T) {
	dir := t.TempDir()
	f := files{dir: dir}
	write := func(id uint64, versions ...uint64) {
		b := make([]byte, walHeaderSize)
		for _, v := range versions {
			b = appendTxn(b, v, "key", "value")
		}
		name := walName(id)
		b = append(b, make([]byte, 100)...)
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		f.wals = append(f.wals, walFile{name: name, id: id})
	}
	log := testOptions(t).withDefaults().Logger

	write(3, 10, 11, 12)
	write(4)
	write(5, 13, 14)
	write(9, 40) // logs between were flushed while a snapshot held the older ones
	sum, err := checkWALs(f, log)
	if err != nil || sum.newest != 40 {
		t.Errorf("checkWALs = %+v, %v, want newest 40", sum, err)
	}
	write(10, 43)
	if _, err := checkWALs(f, log); !errors.Is(err, ErrDamaged) {
		t.Errorf("checkWALs = %v, want ErrDamaged: 41 and 42 are missing", err)
	}
}

// TestLogsWithoutAJournalCount: a database that a program from before the journal was writing when
// it was killed has Badger's own logs, which were synced, with marks of transactions.
func TestLogsWithoutAJournalCount(t *testing.T) {
	o := killed(t, testOptions(t), func(db *DB) {
		for _, key := range []string{"a", "b", "c"} {
			put(t, db, key, "x")
		}
	})
	for _, path := range glob(t, o, "*.mem") {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	journal := lastLog(t, o)
	edit(t, journal, func(b []byte) []byte {
		clear(b[:8])
		copy(b[8:walHeaderSize], "random bytes")
		return b
	})
	if err := os.Rename(journal, strings.TrimSuffix(journal, journalExt)+".mem"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it has a journal
		db := mustOpen(t, o)
		if got := get(t, db, "c"); got != "x" {
			t.Errorf("c = %s, want x", got)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
