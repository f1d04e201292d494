package badgerdb

import "time"

// A sight is what the looks at the free space have shown.
type sight struct {
	free int64 // at the last look
	at   time.Time
	rate float64 // bytes a second by which it shrinks; it is forgotten by and by

	// from is where the present window began. A rate is that of a window at least: a file
	// that is allocated at once is no speed.
	from   int64
	fromAt time.Time
}

// rateWindow is the shortest time over which a rate is told.
const rateWindow = 250 * time.Millisecond

// take notes how much is free, and how fast it goes.
func (s *sight) take(free int64, now time.Time) {
	if s.at.IsZero() {
		*s = sight{free: free, at: now, from: free, fromAt: now}
		return
	}
	// A fast rate is believed at once, and forgotten within a few seconds.
	s.rate *= max(0, 1-2*now.Sub(s.at).Seconds())
	window := now.Sub(s.fromAt)
	s.rate = max(s.rate, float64(s.from-free)/max(window, rateWindow).Seconds())
	s.free, s.at = free, now
	if window >= rateWindow {
		s.from, s.fromAt = free, now
	}
}
