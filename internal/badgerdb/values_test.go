package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/google/go-cmp/cmp"
)

// noValues are those of a database that has none, in which nobody reads.
func noValues(dir string) *values {
	return newValues(dir, slog.New(slog.DiscardHandler), new(readers),
		func() uint64 { return math.MaxUint64 })
}

// valueOptions are those of a database that leaves its values in the journal.
func valueOptions(t *testing.T) Options {
	t.Helper()
	o := testOptions(t)
	o.minValue = 0
	return o
}

// valueFiles returns the names of the files that are kept.
func valueFiles(t *testing.T, o Options) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.Dir, "*"+valueExt))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A valueModel is what a database must show.
type valueModel struct {
	db     *DB
	o      Options
	dice   *rand.Rand
	values map[string]string
	open   []shownThen
	kept   int // the most files that were kept
}

// shownThen is what a snapshot must show.
type shownThen struct {
	at     *Snapshot
	values map[string]string
}

// TestValuesAreWhatWasWritten does at random what can be done to a database, and compares it
// with a map: also what old snapshots, later starts, starts after a kill, and images show.
func TestValuesAreWhatWasWritten(t *testing.T) {
	seeds := 4
	if fullScale() {
		seeds = 100
	}
	kept := 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &valueModel{
				o: valueOptions(t), dice: rand.New(rand.NewPCG(uint64(seed), 7)),
				values: make(map[string]string),
			}
			m.db = mustOpen(t, m.o)
			for range 1200 {
				m.step(t)
			}
			m.reopen(t)
			mustClose(t, m.db)
			kept = max(kept, m.kept)
		})
	}
	if kept == 0 {
		t.Error("no file was kept for its values")
	}
}

func (m *valueModel) step(t *testing.T) {
	t.Helper()
	switch n := m.dice.IntN(400); {
	case n < 3:
		m.open = append(m.open, shownThen{m.db.Snapshot(), maps.Clone(m.values)})
	case n < 6 && len(m.open) > 0:
		i := m.dice.IntN(len(m.open))
		m.checkSnapshot(t, m.open[i])
		m.open[i].at.Discard()
		m.open = slices.Delete(m.open, i, i+1)
	case n < 9:
		if ids := m.db.values.ids(); len(ids) > 0 {
			if err := m.db.collector.free(ids[m.dice.IntN(len(ids))]); err != nil {
				t.Fatal(err)
			}
		}
	case n < 10:
		m.reopen(t)
	case n < 11:
		m.kill(t)
	case n < 40:
		m.check(t, m.key())
	default:
		m.commit(t)
	}
	m.kept = max(m.kept, len(m.db.values.ids()))
}

// modelKeys is how many keys the model knows.
const modelKeys = 60

func (m *valueModel) key() string { return modelKey(m.dice.IntN(modelKeys)) }

func modelKey(n int) string {
	if n < 5 {
		return fmt.Sprintf("a key that is too long %02d", n)
	}
	return fmt.Sprintf("key-%02d", n)
}

func (m *valueModel) value() string {
	size := m.dice.IntN(20 << 10)
	switch m.dice.IntN(4) {
	case 0:
		size = minValue - 2 + m.dice.IntN(4)
	case 1:
		size = m.dice.IntN(100)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(m.dice.Uint32())
	}
	return string(b)
}

func (m *valueModel) commit(t *testing.T) {
	t.Helper()
	err := m.db.Commit(func(txn *Txn) error {
		for range 1 + m.dice.IntN(4) {
			key := m.key()
			if m.dice.IntN(5) == 0 {
				delete(m.values, key)
				if err := txn.Delete([]byte(key)); err != nil {
					return err
				}
				continue
			}
			m.values[key] = m.value()
			if err := txn.Set([]byte(key), []byte(m.values[key])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *valueModel) check(t *testing.T, key string) {
	t.Helper()
	want, there := m.values[key]
	if !there {
		want = "none"
	}
	if got := get(t, m.db, key); got != want {
		t.Fatalf("%s = %.20q (%d), want %.20q (%d)", key, got, len(got), want, len(want))
	}
}

func (m *valueModel) checkSnapshot(t *testing.T, then shownThen) {
	t.Helper()
	for n := range modelKeys {
		key := modelKey(n)
		want, there := then.values[key]
		got, err := then.at.read([]byte(key))
		if there != (err == nil) || !there && !errors.Is(err, badger.ErrKeyNotFound) ||
			string(got) != want {
			t.Fatalf("a snapshot has %s = %.20q (%d), %v, want %.20q (%d), there: %t",
				key, got, len(got), err, want, len(want), there)
		}
	}
}

// checkAll compares everything.
func (m *valueModel) checkAll(t *testing.T, when string, got []string) {
	t.Helper()
	var want []string
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		value := m.values[key]
		want = append(want, fmt.Sprintf("%q=%.20q(%d)", key, value, len(value)))
	}
	for i, pair := range got {
		got[i] = pair[:strings.LastIndex(pair, "@")]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s it holds other things (-want +got):\n%s", when, diff)
	}
}

func (m *valueModel) reopen(t *testing.T) {
	t.Helper()
	for _, then := range m.open {
		m.checkSnapshot(t, then)
		then.at.Discard()
	}
	m.open = nil
	mustClose(t, m.db)
	m.checkAll(t, "closed", imageContent(t, m.o))
	m.db = mustOpen(t, m.o)
	m.checkAll(t, "opened", openContent(t, m.db))
}

// kill goes on with a copy of what a kill would leave.
func (m *valueModel) kill(t *testing.T) {
	t.Helper()
	killed := m.o
	killed.Dir = filepath.Join(t.TempDir(), "killed")
	copyKilled(t, m.o.Dir, killed.Dir)
	for _, then := range m.open {
		then.at.Discard()
	}
	m.open = nil
	mustClose(t, m.db)
	m.o = killed
	m.checkAll(t, "killed", imageContent(t, m.o))
	m.db = mustOpen(t, m.o)
	m.checkAll(t, "opened after a kill", openContent(t, m.db))
}

// fillJournal overwrites keys with values that stay in the journal, until so many files have
// been begun.
func fillJournal(t *testing.T, db *DB, keys, files int) {
	t.Helper()
	value := strings.Repeat("v", 10<<10)
	for from, n := db.journal.id, 0; db.journal.id < from+uint64(files); n++ {
		put(t, db, fmt.Sprintf("fill-%03d", n%keys), fmt.Sprint(n, value))
	}
}

// awaitFiles waits until a database keeps so many files.
func awaitFiles(t *testing.T, db *DB, want func(n int) bool) {
	t.Helper()
	for d := newDeadline(t); ; {
		n := len(db.values.ids())
		if want(n) {
			return
		}
		d.wait(fmt.Sprintf("the files that are kept: %d", n))
	}
}

func TestTablesDoNotHaveLargeValues(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	defer mustClose(t, db)
	fillJournal(t, db, 600, 20)
	awaitFiles(t, db, func(n int) bool { return n > 0 })
	err := db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if item := it.Item(); !Own(item.Key()) && item.ValueSize() > pointerSize {
				return fmt.Errorf("%s has %d bytes", item.Key(), item.ValueSize())
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestShortValuesAreNotNoted: where no value stays in the journal a commit does nothing for it. A
// short value takes the place of one that stays.
func TestShortValuesAreNotNoted(t *testing.T) {
	v := noValues(t.TempDir())
	v.files[1] = new(valueFile)
	db := &DB{minValue: minValue, maxValue: 1 << 20, maxTxnBytes: 1 << 20, maxTxnCount: 10}
	txn := &Txn{db: db, at: place{file: 1}}
	note := func(size int) {
		txn.reset()
		if err := txn.Set([]byte("key"), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		v.note(txn)
	}
	v.mu.Lock() // who waits for it waits for ever
	note(minValue - 1)
	v.mu.Unlock()
	for _, size := range []int{minValue, minValue - 1} {
		note(size)
		if stays := len(v.at) > 0; stays != (size == minValue) {
			t.Errorf("with %d bytes it stays in the journal: %t", size, stays)
		}
	}
}

// TestFilesGoWhenNothingCounts: files that are kept are no more than what counts, and none are
// when nothing does. Nor are there descriptors of others.
func TestFilesGoWhenNothingCounts(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	const keys = 600
	fillJournal(t, db, keys, 40)
	awaitFiles(t, db, func(n int) bool { return n > 0 && n <= keys*10/1000+1 })
	for n := range keys {
		err := db.Commit(func(txn *Txn) error {
			return txn.Delete(fmt.Appendf(nil, "fill-%03d", n))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(t, db, "next", "x") // a reader of the newest commit sees the deletions
	if err := db.settle(); err != nil {
		t.Fatal(err)
	}
	awaitFiles(t, db, func(n int) bool { return n == 0 })
	mustClose(t, db)
	if names := valueFiles(t, o); len(names) != 0 {
		t.Errorf("there are %q", names)
	}
}

// TestColdValuesAmongHotOnes: each file has a value that stays, and many that do not. The files
// that are kept must not become more and more, and nothing may be lost.
func TestColdValuesAmongHotOnes(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	cold := strings.Repeat("c", 5000)
	const files = 60
	for n := range files {
		put(t, db, fmt.Sprintf("cold-%02d", n), fmt.Sprint(n, cold))
		fillJournal(t, db, 20, 1)
	}
	all, live := db.values.bytes()
	for d := newDeadline(t); all > 2*live+(valueSlack+maxWaiting)*db.collector.file; {
		d.wait(fmt.Sprintf("%d bytes are kept for %d that count", all, live))
		all, live = db.values.bytes()
	}
	check := func() {
		for n := range files {
			if got := get(t, db, fmt.Sprintf("cold-%02d", n)); got != fmt.Sprint(n, cold) {
				t.Errorf("cold-%02d = %.20q (%d)", n, got, len(got))
			}
		}
	}
	check()
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	check()
}

// TestSnapshotKeepsItsFiles: what a snapshot shows stays, though everything was overwritten and
// merged, and goes after it.
func TestSnapshotKeepsItsFiles(t *testing.T) {
	db := mustOpen(t, valueOptions(t))
	defer mustClose(t, db)
	fillJournal(t, db, 50, 3)
	s := db.Snapshot()
	first, err := s.read([]byte("fill-007"))
	if err != nil {
		t.Fatal(err)
	}
	fillJournal(t, db, 50, 20)
	awaitFiles(t, db, func(n int) bool { return n > 3 })
	again, err := s.read([]byte("fill-007"))
	if err != nil || !bytes.Equal(again, first) {
		t.Errorf("then %.20q, now %.20q, %v", first, again, err)
	}
	before := len(db.values.ids())
	s.Discard()
	awaitFiles(t, db, func(n int) bool { return n < before })
}

// valueHarms are what may happen to a file that is kept.
var valueHarms = map[string]func(path string) error{ //nolint:gochecknoglobals // a constant
	"missing":   os.Remove,
	"truncated": func(path string) error { return os.Truncate(path, walHeaderSize+100) },
	"empty":     func(path string) error { return os.Truncate(path, 0) },
	"another file": func(path string) error {
		return os.WriteFile(path, make([]byte, 1<<20), 0o600)
	},
	"flipped": func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[bytes.Index(b, []byte("vvvv"))+100] ^= 1
		return os.WriteFile(path, b, 0o600)
	},
}

// TestDamagedValues: what is wrong with a file that is kept is wrong with its values only, and
// over when they are written again.
func TestDamagedValues(t *testing.T) {
	for name, harm := range valueHarms {
		t.Run(name, func(t *testing.T) {
			o := valueOptions(t)
			db := mustOpen(t, o)
			value := strings.Repeat("v", 5000)
			put(t, db, "lost", value)
			put(t, db, "short", "x")
			mustClose(t, db)
			path := valueFiles(t, o)[0]
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			db = mustOpen(t, o)
			s := db.Snapshot()
			_, err := s.read([]byte("lost"))
			s.Discard()
			text := fmt.Sprint(err)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(text, filepath.Base(path)) {
				t.Errorf("reading it: %s, want that %s is damaged", text, filepath.Base(path))
			}
			if gone := strings.Contains(text, "is missing"); gone != (name == "missing") {
				t.Errorf("reading it: %s", text) // another file may have its number already
			}
			if got := get(t, db, "short"); got != "x" {
				t.Errorf("short = %q", got)
			}
			put(t, db, "lost", value+"again")
			mustClose(t, db)
			db = mustOpen(t, o)
			if got := get(t, db, "lost"); got != value+"again" {
				t.Errorf("written again it is %.20q (%d)", got, len(got))
			}
			mustClose(t, db)
		})
	}
}

// TestScrubFindsLostValues: a pass over the files finds what is wrong with those that are kept, as
// long as what is lost counts, and tells whose keys are concerned.
func TestScrubFindsLostValues(t *testing.T) {
	for name, harm := range valueHarms {
		t.Run(name, func(t *testing.T) {
			f := new(findings)
			o := valueOptions(t)
			o.Damaged = f.damaged
			db := mustOpen(t, o)
			put(t, db, "b-sound", strings.Repeat("s", 5000))
			mustClose(t, db)
			sound := valueFiles(t, o)[0]
			db = mustOpen(t, o)
			put(t, db, "c-first", strings.Repeat("v", 5000))
			put(t, db, "d-last", strings.Repeat("w", 5000))
			put(t, db, "a-dead", strings.Repeat("d", 5000))
			put(t, db, "a-dead", "short")
			mustClose(t, db)
			db = mustOpen(t, o)
			defer func() { mustClose(t, db) }()
			mustScrub(t, db)
			if found := f.list(); len(found) != 0 {
				t.Fatalf("before: %v", found)
			}
			path := valueFiles(t, o)[1]
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			mustScrub(t, db)
			found := f.list()
			if name == "missing" { // who has it open reads it, and writes it anew
				if len(found) != 0 || len(db.Upkeep().Damaged) != 0 {
					t.Errorf("found %v", found)
				}
				mustClose(t, db)
				db = mustOpen(t, o)
				if got := get(t, db, "c-first"); got != strings.Repeat("v", 5000) {
					t.Errorf("c-first = %.20q (%d)", got, len(got))
				}
				return
			}
			if len(found) != 1 || found[0].File != filepath.Base(path) ||
				string(found[0].First) != "c-first" {
				t.Fatalf("found %v, want %s and not %s", found, path, sound)
			}
			if last := string(found[0].Last); last != "d-last" && name != "flipped" {
				t.Errorf("up to %s, want d-last", last)
			}
			if u := db.Upkeep(); len(u.Damaged) != 1 || u.Damaged[0] != found[0].Finding {
				t.Errorf("upkeep tells of %v, want %v", u.Damaged, found[0].Finding)
			}
			put(t, db, "c-first", "again")
			put(t, db, "d-last", "again")
			if u := db.Upkeep(); len(u.Damaged) != 0 {
				t.Errorf("upkeep tells of %v when nothing of it counts", u.Damaged)
			}
		})
	}
}

// TestScrubReadsFullJournals: what is in a full file of the journal is lost already, before the
// file gets the name of one that is kept. The finding goes by the name that it has now.
func TestScrubReadsFullJournals(t *testing.T) {
	f := new(findings)
	o := valueOptions(t)
	o.Damaged = f.damaged
	db := mustOpen(t, o)
	defer mustClose(t, db)
	id, name := db.values.begun, filepath.Base(db.journal.path())
	put(t, db, "lost", strings.Repeat("v", 5000))
	mustScrub(t, db) // it is being written to
	fillJournal(t, db, 20, 1)
	if got := db.values.nameOf(id); got != name || filepath.Ext(got) != journalExt {
		t.Fatalf("the file is called %s already", got)
	}
	mustScrub(t, db)
	if found := f.list(); len(found) != 0 {
		t.Fatalf("before: %v", found)
	}
	if err := valueHarms["flipped"](filepath.Join(o.Dir, name)); err != nil {
		t.Fatal(err)
	}
	mustScrub(t, db)
	if found := f.list(); len(found) != 1 || found[0].File != name ||
		string(found[0].First) != "lost" || string(found[0].Last) != "lost" {
		t.Errorf("found %v, want %s", found, name)
	}
	for d := newDeadline(t); db.values.nameOf(id) == name; {
		fillJournal(t, db, 20, 1)
		d.wait("the file to be kept")
	}
	if u := db.Upkeep(); len(u.Damaged) != 1 || u.Damaged[0].File != valueName(id) {
		t.Errorf("upkeep tells of %v, want %s", u.Damaged, valueName(id))
	}
}

// TestScrubKnowsBothNames: a file may have got the name of one that is kept and be known by the one
// before. It is not missing.
func TestScrubKnowsBothNames(t *testing.T) {
	f := new(findings)
	o := valueOptions(t)
	o.Damaged = f.damaged
	db := mustOpen(t, o)
	defer mustClose(t, db)
	id, path := db.values.begun, db.journal.path()
	put(t, db, "key", strings.Repeat("v", 5000))
	fillJournal(t, db, 20, 1)
	kept := filepath.Join(o.Dir, valueName(id))
	if err := os.Rename(path, kept); err != nil {
		t.Fatal(err)
	}
	mustScrub(t, db)
	if found, anew := f.list(), db.collector.rewritten.Load(); len(found) != 0 || anew != 0 {
		t.Errorf("found %v, and %d bytes were written anew", found, anew)
	}
	if err := os.Rename(kept, path); err != nil {
		t.Fatal(err)
	}
}

// TestCollectorTellsOfDamage: who finds that values are lost when he wants to write them anew says
// so, and leaves the file alone.
func TestCollectorTellsOfDamage(t *testing.T) {
	f := new(findings)
	o := valueOptions(t)
	o.Damaged = f.damaged
	db := mustOpen(t, o)
	put(t, db, "lost", strings.Repeat("v", 5000))
	put(t, db, "sound", strings.Repeat("s", 5000))
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	path := valueFiles(t, o)[0]
	if err := valueHarms["flipped"](path); err != nil {
		t.Fatal(err)
	}
	id, err := valueID(filepath.Base(path))
	if err == nil {
		err = db.collector.free(id)
	}
	if found := f.list(); err != nil || len(found) != 1 || string(found[0].First) != "lost" ||
		string(found[0].Last) != "lost" {
		t.Errorf("found %v, %v", found, err)
	}
	if next, found := db.values.worst(-1 << 40); found {
		t.Errorf("%d is to be freed next", next)
	}
	if got := get(t, db, "sound"); got != strings.Repeat("s", 5000) {
		t.Errorf("sound = %.20q", got)
	}
}

// TestReplayedValuesHidePointers: after a kill pairs are replayed that are in tables, too. They
// must be one, also when they are merged.
func TestReplayedValuesHidePointers(t *testing.T) {
	var want []string
	o := killed(t, valueOptions(t), func(db *DB) {
		db.room.leave() // so that no file is let go of
		fillJournal(t, db, 100, 12)
		for d := newDeadline(t); len(db.Tables()) < 2; {
			d.wait("tables")
		}
		want = openContent(t, db)
	})
	for _, name := range []string{"after a kill", "merged", "at last"} {
		db := mustOpen(t, o)
		if name == "merged" {
			if err := db.reclaimer.mergeLevels(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		mustClose(t, db)
		if diff := cmp.Diff(want, imageContent(t, o)); diff != "" {
			t.Errorf("the image %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestClosingIsInterrupted kills the process at each step of letting go of the journal, when all
// is in tables.
func TestClosingIsInterrupted(t *testing.T) {
	whole := valueOptions(t)
	db := mustOpen(t, whole)
	fillJournal(t, db, 150, 2) // files with values that count, and without
	for n := range 50 {
		put(t, db, fmt.Sprintf("fill-%03d", n), "short")
	}
	fillJournal(t, db, 20, 1)
	want := openContent(t, db)
	var states []string
	db.journal.removed = func() {
		to := filepath.Join(t.TempDir(), "db")
		if err := os.CopyFS(to, os.DirFS(whole.Dir)); err != nil {
			t.Fatal(err)
		}
		states = append(states, to)
	}
	mustClose(t, db)
	if len(states) < 4 {
		t.Fatalf("%d steps, want more to interrupt", len(states))
	}
	for n, dir := range states {
		o := whole
		o.Dir = dir
		checkContent(t, fmt.Sprintf("after %d steps", n), o, want)
		db := mustOpen(t, o)
		if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
			t.Errorf("opened after %d steps (-want +got):\n%s", n, diff)
		}
		mustClose(t, db)
	}
}

// TestKilledWhileFilesAreKept kills the process after it has given some of the files that are in
// tables the names of such that are kept, and others not yet.
func TestKilledWhileFilesAreKept(t *testing.T) {
	var want []string
	var done []fullJournal
	whole := killed(t, valueOptions(t), func(db *DB) {
		db.room.leave() // so that no file is let go of
		fillJournal(t, db, 900, 12)
		inTables := func() (files []fullJournal) {
			db.journal.mu.Lock()
			defer db.journal.mu.Unlock()
			for _, f := range db.journal.full {
				if !db.journal.inTables(f.log, db.journal.active) {
					break
				}
				files = append(files, f)
			}
			return files
		}
		for d := newDeadline(t); len(done) < maxWaiting; done = inTables() {
			d.wait("files to be in tables")
		}
		want = openContent(t, db)
	})
	for n := 1; n <= len(done); n++ {
		o := copied(t, whole)
		for _, f := range done[:n] {
			from, to := filepath.Join(o.Dir, f.name), filepath.Join(o.Dir, valueName(uint32(f.id)))
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		checkContent(t, fmt.Sprintf("with %d files kept", n), o, want)
		for range 2 { // the second time all is in tables
			db := mustOpen(t, o)
			if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
				t.Errorf("opened with %d files kept (-want +got):\n%s", n, diff)
			}
			mustClose(t, db)
		}
	}
}

// TestFilesOfValuesAreClosed: of files that are used again or removed no descriptor stays, and
// none of any when the database is closed.
func TestFilesOfValuesAreClosed(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	fillJournal(t, db, 50, 30)
	settle(t, db)
	count := func() (open []string, known int) {
		db.values.mu.Lock() // so that none is let go of meanwhile
		defer db.values.mu.Unlock()
		return openFiles(t, o.Dir, journalExt, spareExt, valueExt), len(db.values.files)
	}
	for d := newDeadline(t); ; {
		open, known := count()
		if len(open) == known+1 { // and the one that is written
			break
		}
		d.wait(fmt.Sprintf("%d files are open, of %d that are known: %q", len(open), known, open))
	}
	mustClose(t, db)
	if open := openFiles(t, o.Dir, ""); len(open) > 0 {
		t.Errorf("closed it has %q open", open)
	}
}

// openFiles returns the files in a directory that this process has open, with one of some
// extensions.
func openFiles(t *testing.T, dir string, exts ...string) (paths []string) {
	t.Helper()
	const own = "/proc/self/fd"
	fds, err := os.ReadDir(own)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the system does not tell which files are open")
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		path, err := os.Readlink(filepath.Join(own, fd.Name()))
		if err != nil || filepath.Dir(path) != dir {
			continue // it is closed by now, or another one
		}
		path = strings.TrimSuffix(path, " (deleted)")
		has := func(ext string) bool { return strings.HasSuffix(path, ext) }
		if slices.ContainsFunc(exts, has) {
			paths = append(paths, path)
		}
	}
	return paths
}
