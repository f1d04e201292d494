package badgerdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withoutJournal returns a database as it is left by a kill of a process that has no journal: its
// base is in tables, and the rest in logs of Badger's, of which the last ends in a transaction
// that was cut off. It holds what without returns.
func withoutJournal(
	t *testing.T, options func(*testing.T) Options,
) (o Options, want []string) {
	t.Helper()
	o = options(t)
	db := mustOpen(t, o)
	next := db.NextTs()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("v", 5000)
	for id := range uint64(3) {
		b := []byte("\x00\x00\x00\x00\x00\x00\x00\x00random bytes")
		for i := range 5 {
			key, own := fmt.Sprintf("key-%d-%d", id, i), fmt.Sprint(id, value)
			want = append(want, fmt.Sprintf("%q=%.20q(%d)@%d", key, own, len(own), next))
			b = appendTxn(b, next, key, own)
			next++
		}
		if id == 2 {
			b = appendRaw(b, bitTxn, next, "torn", value)
		}
		path := filepath.Join(o.Dir, walName(20+id))
		err := os.WriteFile(path, append(b, make([]byte, 9000)...), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	return o, want
}

// withJournal returns a database as a kill leaves it: with some files of the journal, of which
// the last has more behind its end, and logs of Badger's.
func withJournal(t *testing.T, options func(*testing.T) Options) (o Options, want []string) {
	t.Helper()
	value := strings.Repeat("v", 50_000)
	o = killed(t, options(t), func(db *DB) {
		db.journal.limit /= 6
		db.room.leave() // or files that wait could be let go of
		for i := range 15 {
			put(t, db, fmt.Sprint("key-", i), fmt.Sprint(i, value))
		}
		put(t, db, "key-3", "newer")
		err := db.Commit(func(txn *Txn) error { return txn.Delete([]byte("key-4")) })
		if err = errors.Join(err, db.settle()); err != nil {
			t.Fatal(err)
		}
		want = openContent(t, db)
	})
	b := appendRaw(nil, bitTxn, 1<<20, "torn", "x")[:20]
	edit(t, lastLog(t, o), func(log []byte) []byte {
		c, err := replay(log)
		if err != nil {
			t.Fatal(err)
		}
		copy(log[c.end:], b)
		return log
	})
	return o, want
}

// TestAdoptingIsInterrupted kills the process after each step with which it adopts the logs that
// it finds, and after some of a second try, too. Nothing may be missing at last.
func TestAdoptingIsInterrupted(t *testing.T) { bothWays(t, testAdoptingIsInterrupted) }

func testAdoptingIsInterrupted(t *testing.T, options func(*testing.T) Options) {
	for _, tt := range []struct {
		name string
		make func(*testing.T, func(*testing.T) Options) (Options, []string)
	}{{"without a journal", withoutJournal}, {"with a journal", withJournal}} {
		t.Run(tt.name, func(t *testing.T) {
			whole, want := tt.make(t, options)
			steps := stepsOf(t, whole)
			if len(steps) < 6 {
				t.Fatalf("%d steps, want more to interrupt", len(steps))
			}
			for n := range len(steps) + 1 {
				o := copied(t, whole)
				adoptSome(t, o, n)
				checkContent(t, fmt.Sprintf("after %d steps", n), o, want)
				for again := n % 11; again < len(stepsOf(t, o)); again += 11 {
					twice := copied(t, o)
					adoptSome(t, twice, again)
					checkContent(t, fmt.Sprintf("after %d and %d steps", n, again), twice, want)
				}
			}
		})
	}
}

func stepsOf(t *testing.T, o Options) []func() error {
	t.Helper()
	o = o.withDefaults()
	log := o.Logger
	f, err := listFiles(o.Dir, log)
	if err != nil {
		t.Fatal(err)
	}
	w, err := checkWALs(f, log)
	if err != nil {
		t.Fatal(err)
	}
	return adoptSteps(f, w, o.minValue, log)
}

// adoptSome does the first n steps.
func adoptSome(t *testing.T, o Options, n int) {
	t.Helper()
	for _, step := range stepsOf(t, o)[:n] {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkContent looks what a database holds that is not open, without changing it.
func checkContent(t *testing.T, when string, o Options, want []string) {
	t.Helper()
	got := slices.DeleteFunc(imageContent(t, o), func(pair string) bool {
		return strings.HasPrefix(pair, fmt.Sprintf("%q", ownPrefix)[:5])
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s it holds other things (-want +got):\n%s", when, diff)
	}
}

// TestAdoptedIsThereWhenOpened opens what adopting has left in its states, for real, kills it at
// once, and opens it again.
func TestAdoptedIsThereWhenOpened(t *testing.T) { bothWays(t, testAdoptedIsThereWhenOpened) }

func testAdoptedIsThereWhenOpened(t *testing.T, options func(*testing.T) Options) {
	for _, tt := range []struct {
		name string
		make func(*testing.T, func(*testing.T) Options) (Options, []string)
	}{{"without a journal", withoutJournal}, {"with a journal", withJournal}} {
		t.Run(tt.name, func(t *testing.T) {
			whole, want := tt.make(t, options)
			for n := 0; n <= len(stepsOf(t, whole)); n += 5 {
				o := copied(t, whole)
				adoptSome(t, o, n)
				for round := range 2 {
					o = killed(t, o, func(db *DB) {
						if got := openContent(t, db); !slices.Equal(got, want) {
							t.Errorf("opened after %d steps, and %d kills, it holds %d pairs: %s",
								n, round, len(got), cmp.Diff(want, got))
						}
					})
					checkContent(t, fmt.Sprintf("%d steps, %d kills:", n, round), o, want)
				}
			}
		})
	}
}

// TestKilledBeforeTheFirstFlush kills a database again and again, each time before what it has
// adopted has come to tables, with a commit in between or none.
func TestKilledBeforeTheFirstFlush(t *testing.T) { bothWays(t, testKilledBeforeTheFirstFlush) }

func testKilledBeforeTheFirstFlush(t *testing.T, options func(*testing.T) Options) {
	o := options(t)
	var want []string
	for round := range 6 {
		o = killed(t, o, func(db *DB) {
			if round%2 == 0 {
				put(t, db, fmt.Sprint("key-", round), strings.Repeat("x", 2000))
			}
			want = openContent(t, db)
		})
		checkContent(t, fmt.Sprintf("round %d:", round), o, want)
		// As if no memtable had become a table: what is adopted, and nothing else.
		adoptSome(t, o, len(stepsOf(t, o)))
		checkContent(t, fmt.Sprintf("round %d, adopted:", round), o, want)
	}
	db := mustOpen(t, o)
	if got := openContent(t, db); !slices.Equal(got, want) {
		t.Errorf("it holds %q, want %q", got, want)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHalfFilledBadgerLogsCountForNothing: what Badger has in its own logs is neither whole nor
// on the disk, and may say anything.
func TestHalfFilledBadgerLogsCountForNothing(t *testing.T) {
	bothWays(t, testHalfFilledBadgerLogsCountForNothing)
}

func testHalfFilledBadgerLogsCountForNothing(t *testing.T, options func(*testing.T) Options) {
	whole, want := withJournal(t, options)
	for name, change := range map[string]func([]byte) []byte{
		"zeros":    func(b []byte) []byte { clear(b); return b },
		"cut":      func(b []byte) []byte { return b[:3] },
		"garbage":  func(b []byte) []byte { b[walHeaderSize+30] ^= 1; return b },
		"a header": func(b []byte) []byte { clear(b[walHeaderSize:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			o := copied(t, whole)
			for _, path := range glob(t, o, "*.mem") {
				if info, err := os.Stat(path); err == nil && info.Size() > 0 {
					edit(t, path, change)
				}
			}
			checkContent(t, name, o, want)
			db := mustOpen(t, o)
			if got := openContent(t, db); !slices.Equal(got, want) {
				t.Errorf("it holds other things: %s", cmp.Diff(want, got))
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestGapInTheJournalIsRefused takes away one file of the journal between others. What only that
// had is missed, by Open and by OpenImage. The first one may be missing: all of it is in tables,
// then.
func TestGapInTheJournalIsRefused(t *testing.T) { bothWays(t, testGapInTheJournalIsRefused) }

func testGapInTheJournalIsRefused(t *testing.T, options func(*testing.T) Options) {
	// Transactions 2 to 18, in several files.
	whole, want := withJournal(t, options)
	logs := glob(t, whole, "*"+journalExt)
	if len(logs) < 4 {
		t.Fatalf("%q, want more files", logs)
	}
	content := func(path string) walContent {
		c, err := checkWAL(path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i, path := range logs[1 : len(logs)-1] {
		c := content(path)
		o := copied(t, whole)
		if err := os.Remove(filepath.Join(o.Dir, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
		checkImage(t, o, false)
		_, err := Open(o)
		text := fmt.Sprintf("begins with transaction %d, but the log before it ends with %d",
			c.last+1, c.first-1)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), text) {
			t.Errorf("without file %d Open = %v, want %q", i+1, err, text)
		}
	}
	// All come to tables with an orderly end, and the first files are let go of.
	o := copied(t, whole)
	db := mustOpen(t, o)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range logs[2:] {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err = os.WriteFile(filepath.Join(o.Dir, filepath.Base(path)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checkContent(t, "with the last files of the journal", o, want)
	o = killed(t, o, func(db *DB) {
		if got := openContent(t, db); !slices.Equal(got, want) {
			t.Errorf("it holds other things: %s", cmp.Diff(want, got))
		}
	})
	checkContent(t, "opened once more", o, want)
}
