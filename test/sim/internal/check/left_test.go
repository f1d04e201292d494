package check

import "testing"

// TestInspected: what is on a disk must be of a replica that is there.
func TestInspected(t *testing.T) {
	own := Thing{What: "a directory", Group: benchGroup, Replica: 3, Incarnation: "01000000"}
	try(t, []breach{
		{"of another group", Tidy, func(b *bench) {
			b.c.Inspected(3, []Thing{own, {What: "a record", Group: benchGroup + 1}})
		}},
		{"of another replica", Tidy, func(b *bench) {
			b.c.Inspected(3, []Thing{{What: "a directory", Group: benchGroup, Replica: 2}})
		}},
		{"of an earlier life of the group", Tidy, func(b *bench) {
			b.c.Inspected(3, []Thing{{What: "a record", Group: benchGroup, Incarnation: "02"}})
		}},
		{"of a replica that was destroyed", Tidy, func(b *bench) {
			b.bury()
			b.c.Inspected(3, []Thing{own})
		}},
		{"of a node that has never had a state machine", Tidy, func(b *bench) {
			b.c.Lacking(2, true)
			b.c.Inspected(2, []Thing{own})
		}},
		{"of a replica that is elsewhere", Tidy, func(b *bench) {
			b.c.Inspected(2, []Thing{own})
		}},
	})
	b := newBench(t, Config{})
	b.c.Crashed(3, LostNothing)
	b.c.Inspected(3, []Thing{own, {What: "a record", Group: benchGroup}})
	b.c.Lacking(2, true)
	b.c.Crashed(2, LostSome) // it cannot tell that it has never had one
	b.c.Inspected(2, []Thing{own})
	b.none()
}
