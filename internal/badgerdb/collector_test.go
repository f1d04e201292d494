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

// TestCollectorGoesOnBehindDamage: something that does not count any more is damaged. What counts
// behind it is written anew, so that the file can go, and nobody is told of anything.
func TestCollectorGoesOnBehindDamage(t *testing.T) {
	f := new(findings)
	o := valueOptions(t)
	o.Damaged = f.damaged
	db := mustOpen(t, o)
	put(t, db, "before", strings.Repeat("b", 5000))
	put(t, db, "dead", strings.Repeat("v", 5000))
	put(t, db, "behind", strings.Repeat("s", 5000))
	put(t, db, "dead", "short")
	mustClose(t, db)
	path := valueFiles(t, o)[0]
	if err := valueHarms["flipped"](path); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, o)
	defer mustClose(t, db)
	id, err := valueID(filepath.Base(path))
	if err == nil {
		err = db.collector.free(id)
	}
	if live := db.values.live(id); err != nil || live != 0 || len(f.list()) != 0 {
		t.Errorf("%d bytes count in the file, found %v, %v", live, f.list(), err)
	}
	for key, c := range map[string]string{"before": "b", "behind": "s"} {
		if got := get(t, db, key); got != strings.Repeat(c, 5000) {
			t.Errorf("%s = %.20q (%d)", key, got, len(got))
		}
	}
}
