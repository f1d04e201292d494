package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
