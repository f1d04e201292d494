package storage

import "slices"

// slots are the places of a group's log records. A record goes into a free slot,
// over what was there before, so that in the steady state nothing is deleted: a
// deleted key costs Badger a marker that outlives it.
type slots struct {
	next uint32   // the lowest slot that was never used
	held uint32   // slots that hold something, dead or alive
	free []uint32 // those of them whose record is dead, and durably so
	peak uint32   // how many were alive at once, fading
}

// minSlots is how many slots a group keeps however few it needs.
const minSlots = 64

func (s *slots) alive() uint32 { return s.held - uint32(len(s.free)) }

// release adds slots to the free ones, and returns those that are too many: that
// were needed once, in a burst, but not since. The caller deletes them.
//
// A log that grows and is cut again has the same peak at every cut, so it keeps
// its slots.
func (s *slots) release(dead []uint32) (surplus []uint32) {
	if len(dead) == 0 {
		return nil
	}
	s.peak = max(s.alive(), s.peak-s.peak/8)
	s.free = append(s.free, dead...)
	keep := max(2*s.peak, minSlots)
	if s.held <= keep {
		return nil
	}
	n := min(int(s.held-keep), len(s.free))
	slices.Sort(s.free)
	surplus = slices.Clone(s.free[len(s.free)-n:])
	s.free = s.free[:len(s.free)-n]
	s.held -= uint32(n)
	return surplus
}

// slotTaker hands out slots for a batch that may not come to pass: nothing is
// taken for good before commit is called.
type slotTaker struct {
	from  *slots
	reuse int    // how many of from.free are taken
	fresh uint32 // how many new ones
}

func (t *slotTaker) take() uint32 {
	if n := len(t.from.free); t.reuse < n {
		t.reuse++
		return t.from.free[n-t.reuse]
	}
	t.fresh++
	return t.from.next + t.fresh - 1
}

func (t *slotTaker) commit() {
	t.from.free = t.from.free[:len(t.from.free)-t.reuse]
	t.from.next += t.fresh
	t.from.held += t.fresh
	t.reuse, t.fresh = 0, 0
}
