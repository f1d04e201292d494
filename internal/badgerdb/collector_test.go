package badgerdb

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCollectorLeavesAloneWhatItCannotHelp: files of which nothing counts, but that an open
// snapshot sees, and damaged ones do not go when others are written anew. Because of them what
// counts must not be written anew again and again.
func TestCollectorLeavesAloneWhatItCannotHelp(t *testing.T) {
	sound := valueFile{size: 100, live: 90, count: 9, kept: true}
	for name, other := range map[string]valueFile{
		"seen by a snapshot": {size: 100, dead: 7, kept: true},
		"damaged":            {size: 100, live: 1, count: 1, kept: true, bad: true},
		"of the journal":     {size: 100, live: 1, count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := noValues(t.TempDir())
			for id := range uint32(40) {
				f := other
				if id < 20 {
					f = sound
				}
				v.files[id] = &f
			}
			if id, found := v.worst(100); found {
				t.Errorf("file %d, of %+v, is to be freed", id, *v.files[id])
			}
			v.files[3].live, v.files[3].count = 10, 1
			for id := range uint32(3) {
				v.files[id].live = 20
			}
			if id, found := v.worst(-1 << 20); !found || id != 3 {
				t.Errorf("file %d is to be freed, %t, want 3", id, found)
			}
		})
	}
}

// TestCollectorTellsOfDamage: who finds that values are lost when he wants to write them anew says
// so, and leaves the file alone.
func TestCollectorTellsOfDamage(t *testing.T) {
	db, id, found := freeDamaged(t, func(db *DB) {
		put(t, db, "lost", strings.Repeat("v", 5000))
		put(t, db, "sound", strings.Repeat("s", 5000))
	})
	if len(found) != 1 || found[0].File != valueName(id) ||
		string(found[0].First) != "lost" || string(found[0].Last) != "lost" {
		t.Errorf("found %v", found)
	}
	if next, found := db.values.worst(-1 << 40); found {
		t.Errorf("%d is to be freed next", next)
	}
	if got := get(t, db, "sound"); got != strings.Repeat("s", 5000) {
		t.Errorf("sound = %.20q", got)
	}
}

// TestCollectorGoesOnBehindDamage: something that does not count any more is damaged. What counts
// behind it is written anew, so that the file can go, and nobody is told of anything.
func TestCollectorGoesOnBehindDamage(t *testing.T) {
	db, id, found := freeDamaged(t, func(db *DB) {
		put(t, db, "before", strings.Repeat("b", 5000))
		put(t, db, "dead", strings.Repeat("v", 5000))
		put(t, db, "behind", strings.Repeat("s", 5000))
		put(t, db, "dead", "short")
	})
	if live := db.values.live(id); live != 0 || len(found) != 0 {
		t.Errorf("%d bytes count in the file, found %v", live, found)
	}
	for key, c := range map[string]string{"before": "b", "behind": "s"} {
		if got := get(t, db, key); got != strings.Repeat(c, 5000) {
			t.Errorf("%s = %.20q (%d)", key, got, len(got))
		}
	}
}

// freeDamaged opens a database that has kept a file, in which a value of many v is damaged, and has
// the collector free that. It returns what was found.
func freeDamaged(t *testing.T, fill func(*DB)) (db *DB, id uint32, found []Damage) {
	t.Helper()
	f := new(findings)
	o := valueOptions(t)
	o.Damaged = f.damaged
	db = mustOpen(t, o)
	fill(db)
	mustClose(t, db)
	path := valueFiles(t, o)[0]
	if err := valueHarms["flipped"](path); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, o)
	t.Cleanup(func() { mustClose(t, db) })
	id, err := valueID(filepath.Base(path))
	if err == nil {
		err = db.collector.free(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return db, id, f.list()
}
