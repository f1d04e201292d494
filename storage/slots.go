package storage

import (
	"cmp"
	"slices"
)

// slots are the places of a group's log records. A record goes into a free slot,
// over what was there before, so that in the steady state nothing is deleted: a
// deleted key costs Badger a marker that outlives it.
//
// What a burst has needed, and nothing since, is given back: slots that are too
// many with the next cut of the log (release), bytes that are too many after a
// while (trim).
type slots struct {
	next   uint32   // the lowest slot that was never used
	vacant []uint32 // slots below next whose key is deleted, and durably so
	held   uint32   // slots that hold something, dead or alive, and are the log's
	free   []slot   // those of them whose record is dead, and durably so
	doomed uint32   // slots that were given to the garbage and still hold something
	peak   uint32   // how many were alive at once, fading

	live int64    // bytes that records of the log take
	dead int64    // bytes that records in free slots take
	high [2]int64 // the highest live since the last trim, and in the time before
}

// slot is a slot and how many bytes its record takes.
type slot struct{ number, bytes uint32 }

const (
	// minSlots is how many slots a group keeps however few it needs.
	minSlots = 64

	// slotCharge is what a record takes beside its entries: key, prefix and head.
	slotCharge = 100
)

func (s *slots) alive() uint32 { return s.held - uint32(len(s.free)) }

// filled counts a record of the log.
func (s *slots) filled(bytes int64) {
	s.live += bytes
	s.high[0] = max(s.high[0], s.live)
}

// addFree takes in slots that hold something dead.
func (s *slots) addFree(dead ...slot) {
	s.free = append(s.free, dead...)
	for _, d := range dead {
		s.dead += int64(d.bytes)
	}
}

// freed takes in slots whose record was alive and counted by filled.
func (s *slots) freed(dead []slot) {
	s.addFree(dead...)
	for _, d := range dead {
		s.live -= int64(d.bytes)
	}
}

// release takes in the slots that a batch has freed, and returns those that are
// too many: that were needed once, in a burst, but not since. The caller gives
// them to the garbage.
//
// A log that grows and is cut again has the same peak at every cut, so it keeps
// its slots.
func (s *slots) release(dead []slot) (surplus []uint32) {
	if len(dead) == 0 {
		return nil
	}
	s.peak = max(s.alive(), s.peak-s.peak/8)
	s.freed(dead)
	keep := max(2*s.peak, minSlots)
	if s.held <= keep {
		return nil
	}
	slices.SortFunc(s.free, func(a, b slot) int { return cmp.Compare(a.number, b.number) })
	return s.drop(min(int(s.held-keep), len(s.free)))
}

// trim returns free slots that are too many by their bytes; the caller gives
// them to the garbage. It is called at a fixed interval. A group keeps as many
// bytes as its log needed at once in this interval and the one before, and allow
// more: a log that grows and is cut again at least that often keeps its slots.
//
// The largest go first, which returns most for the fewest deletions.
func (s *slots) trim(allow int64) (surplus []uint32) {
	keep := max(s.high[0], s.high[1]) + allow
	s.high = [2]int64{s.live, s.high[0]}
	excess := s.live + s.dead - keep
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(s.free, func(a, b slot) int { return cmp.Compare(a.bytes, b.bytes) })
	n := 0
	for ; excess > 0 && n < len(s.free); n++ {
		excess -= int64(s.free[len(s.free)-1-n].bytes)
	}
	return s.drop(n)
}

// drop takes the last n free slots out.
func (s *slots) drop(n int) []uint32 {
	numbers := make([]uint32, 0, n)
	kept := len(s.free) - n
	for _, f := range s.free[kept:] {
		s.dead -= int64(f.bytes)
		numbers = append(numbers, f.number)
	}
	s.free = slices.Clip(s.free[:kept])
	s.held -= uint32(n)
	s.doomed += uint32(n)
	return numbers
}

// vacate takes note that doomed slots hold nothing any more. Their numbers are
// used again, if the log is still there; otherwise they would, in years, run out.
func (s *slots) vacate(numbers []uint32, live bool) {
	s.doomed -= uint32(len(numbers))
	switch {
	case s.held == 0 && s.doomed == 0:
		s.next, s.vacant = 0, nil
	case live:
		s.vacant = append(s.vacant, numbers...)
	}
}

// slotTaker hands out slots for a batch that may not come to pass: nothing is
// taken for good before commit is called.
type slotTaker struct {
	from  *slots
	reuse int    // how many of from.free are taken
	again int    // how many of from.vacant
	fresh uint32 // how many new ones
}

func (t *slotTaker) take() uint32 {
	if n := len(t.from.free); t.reuse < n {
		t.reuse++
		return t.from.free[n-t.reuse].number
	}
	if n := len(t.from.vacant); t.again < n {
		t.again++
		return t.from.vacant[n-t.again]
	}
	t.fresh++
	return t.from.next + t.fresh - 1
}

func (t *slotTaker) commit() {
	s := t.from
	kept := len(s.free) - t.reuse
	for _, f := range s.free[kept:] {
		s.dead -= int64(f.bytes)
	}
	s.free = s.free[:kept]
	s.vacant = s.vacant[:len(s.vacant)-t.again]
	s.next += t.fresh
	s.held += t.fresh + uint32(t.again)
	t.reuse, t.again, t.fresh = 0, 0, 0
}
