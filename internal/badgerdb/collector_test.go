package badgerdb

import "testing"

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
