package badgerdb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/raftyard/raftyard/internal/vfs/vfstest"
)

// content is what a database shows: its pairs, with their versions, by key.
func content(scan func(fn func(key, value []byte, version uint64) error) error) ([]string, error) {
	var all []string
	err := scan(func(key, value []byte, version uint64) error {
		all = append(all, fmt.Sprintf("%q=%.20q(%d)@%d", key, value, len(value), version))
		return nil
	})
	return all, err
}

func openContent(t *testing.T, db *DB) []string {
	t.Helper()
	all, err := content(func(fn func(key, value []byte, version uint64) error) error {
		s := db.Snapshot()
		defer s.Discard()
		it := s.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			item := it.Item()
			if Own(item.Key()) {
				continue
			}
			err := s.Value(item, func(v []byte) error { return fn(item.Key(), v, item.Version()) })
			if err != nil {
				return err
			}
		}
		return s.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func imageContent(t *testing.T, o Options) []string {
	t.Helper()
	m, found, err := OpenImage(o.Dir, o.Profile)
	if err != nil || m == nil {
		t.Fatalf("OpenImage: %v, %v", found, err)
	}
	all, err := content(func(fn func(key, value []byte, version uint64) error) error {
		return m.Scan(nil, fn)
	})
	if err = errors.Join(err, m.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

// churn writes, overwrites and deletes, so that there are tables of several levels.
func churn(t *testing.T, db *DB, dice *rand.Rand, commits int) {
	t.Helper()
	value := make([]byte, 2000)
	for i := range value {
		value[i] = byte(dice.IntN(256))
	}
	for range commits {
		err := db.Commit(func(txn *Txn) error {
			for range 1 + dice.IntN(5) {
				key := fmt.Appendf(nil, "key%03d", dice.IntN(300))
				if dice.IntN(4) == 0 {
					if err := txn.Delete(key); err != nil {
						return err
					}
					continue
				}
				if err := txn.Set(key, value[:dice.IntN(len(value))]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestImageShowsWhatTheDatabaseShows(t *testing.T) {
	bothWays(t, testImageShowsWhatTheDatabaseShows)
}

func testImageShowsWhatTheDatabaseShows(t *testing.T, options func(*testing.T) Options) {
	for _, profile := range []Profile{Log, State} {
		t.Run(profile.String(), func(t *testing.T) {
			o := options(t)
			o.Profile = profile
			dice := rand.New(rand.NewPCG(1, uint64(profile)))
			for round := range 2 {
				db := mustOpen(t, o)
				churn(t, db, dice, 600)
				want := openContent(t, db)
				killed := Options{Dir: filepath.Join(t.TempDir(), "killed"), Profile: profile}
				// What is on disk now is what a kill leaves; with commits going on it would
				// be torn, but none does.
				waitForCut(t, db)
				copyKilled(t, o.Dir, killed.Dir)
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				for _, dir := range []Options{killed, o} {
					before := vfstest.Tree(t, dir.Dir)
					if got := imageContent(t, dir); !slices.Equal(got, want) {
						t.Errorf("round %d: the image of %s shows %d pairs, the database %d: %s",
							round, dir.Dir, len(got), len(want), cmp.Diff(want, got))
					}
					if after := vfstest.Tree(t, dir.Dir); !slices.Equal(before, after) {
						t.Errorf("reading %s has changed it", dir.Dir)
					}
				}
			}
		})
	}
}

// copyKilled copies the files of an open database until a copy is of one moment.
func copyKilled(t *testing.T, from, to string) {
	t.Helper()
	wait := newDeadline(t)
	for {
		before, err := vfstest.List(from)
		if err == nil {
			err = os.CopyFS(to, os.DirFS(from))
		}
		after, aerr := vfstest.List(from)
		if err == nil && aerr == nil && slices.Equal(before, after) {
			return
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		wait.wait("a quiet moment")
	}
}

func TestImageGet(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	put(t, db, "a", "1")
	put(t, db, "ab", "2")
	put(t, db, "a", "3")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	m, _, err := OpenImage(o.Dir, o.Profile)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "3", "ab": "2", "b": "", "": ""} {
		got, err := m.Get([]byte(key))
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("Get(%q) = %q, %v, want %q", key, got, err, want)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestImageOfADatabaseInUse(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	if _, _, err := OpenImage(o.Dir, o.Profile); !errors.Is(err, ErrLocked) {
		t.Errorf("OpenImage of an open database: %v, want ErrLocked", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	m, _, err := OpenImage(o.Dir, o.Profile)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := OpenImage(o.Dir, o.Profile)
	if err != nil {
		t.Fatalf("a second OpenImage: %v", err)
	}
	if _, err := Open(o); !errors.Is(err, ErrLocked) {
		t.Errorf("Open while there is an image: %v, want ErrLocked", err)
	}
	if err := errors.Join(m.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, o).Close(); err != nil {
		t.Fatal(err)
	}
}

// damageTest is a way to damage a database.
type damageTest struct {
	name     string
	file     func(t *testing.T, dir string) string
	change   func([]byte) []byte // nil: the file is removed; keep: it is damaged already
	harmless bool
}

// keep changes nothing.
func keep(b []byte) []byte { return b }

func TestImageFindsDamage(t *testing.T) {
	whole := testOptions(t)
	db := mustOpen(t, whole)
	churn(t, db, rand.New(rand.NewPCG(7, 7)), 600)
	killed := filepath.Join(t.TempDir(), "killed")
	waitForCut(t, db)
	copyKilled(t, whole.Dir, killed)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	first := func(pattern string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			return glob(t, Options{Dir: dir}, pattern)[0]
		}
	}
	newest := func(pattern string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			return slices.Max(glob(t, Options{Dir: dir}, pattern))
		}
	}
	flip := func(at float64) func([]byte) []byte {
		return func(b []byte) []byte { b[int(at*float64(len(b)-1))] ^= 0x20; return b }
	}
	tests := []damageTest{
		{"table flipped", first("*.sst"), flip(0.5), false},
		{"table's end flipped", first("*.sst"), flip(1), false},
		{"table cut", first("*.sst"), func(b []byte) []byte { return b[:len(b)/2] }, false},
		{"table empty", first("*.sst"), func([]byte) []byte { return nil }, false},
		{"table missing", first("*.sst"), nil, false},
		{"manifest flipped", first("MANIFEST"), flip(0.5), false},
		{"manifest empty", first("MANIFEST"), func([]byte) []byte { return nil }, false},
		{"manifest missing", first("MANIFEST"), nil, false},
		{"log flipped", first("*.jnl"), func(b []byte) []byte { b[200] ^= 1; return b }, false},
		{"log's header", first("*.jnl"), flip(0), false},
		{"log's first", first("*.jnl"), func(b []byte) []byte { b[18] ^= 1; return b }, false},
		{"log no journal", first("*.jnl"), func(b []byte) []byte { b[9] ^= 1; return b }, false},
		{"log missing", newest("*.jnl"), nil, false},
		{"log that does not count", first("*.mem"), flip(0), true},
		{"registry flipped", first("KEYREGISTRY"), flip(1), true},
		{"registry cut", first("KEYREGISTRY"), func(b []byte) []byte { return b[:9] }, true},
		{"registry missing", first("KEYREGISTRY"), nil, true},
		{"value log cut", first("*.vlog"), func(b []byte) []byte { return b[:5] }, true},
		{"value log flipped", first("*.vlog"), flip(0), true},
		{"value log missing", first("*.vlog"), nil, true},
		{"statistics cut", first("DISCARD"), func(b []byte) []byte { return b[:9] }, true},
	}
	for _, pattern := range []string{
		"*.sst", "*.mem", "*.jnl", "*.vlog", "MANIFEST", "KEYREGISTRY", "DISCARD", "LOCK",
	} {
		tests = append(tests, damageTest{pattern + " is no file", func(
			t *testing.T, dir string,
		) string {
			path := first(pattern)(t, dir)
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o750)); err != nil {
				t.Fatal(err)
			}
			return path
		}, keep, false})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "db")
			if err := os.CopyFS(dir, os.DirFS(killed)); err != nil {
				t.Fatal(err)
			}
			path := tt.file(t, dir)
			if info, err := os.Stat(path); err != nil {
				t.Fatal(err)
			} else if tt.change == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else if !info.IsDir() {
				edit(t, path, tt.change)
			}
			m, found, err := OpenImage(dir, whole.Profile)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(found)
			if (m != nil) != tt.harmless {
				t.Errorf("OpenImage = %v, want one only if that is harmless", found)
			}
			if m != nil {
				if err = m.Close(); err != nil {
					t.Fatal(err)
				}
			}
			named := slices.ContainsFunc(found, func(f Finding) bool {
				return !f.Harmless && f.File != "" && f.What != "" &&
					!strings.Contains(f.What, "database is damaged")
			})
			if named == tt.harmless {
				t.Errorf("findings %v, want one that names the file", found)
			}
			opts := whole
			opts.Dir = dir
			again, err := Open(opts)
			if (err == nil) != tt.harmless {
				t.Errorf("Open = %v, the image says otherwise", err)
			}
			if again != nil {
				if err := again.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
