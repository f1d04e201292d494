// Package space tells how fast the free space of a file system goes, so that work which
// needs space can end before there is none.
package space

import (
	"slices"
	"time"
)

// A Look is one look at the free space.
type Look struct {
	Free int64 // bytes
	// Asked is when the file system was asked, and Seen when the answer was at hand: the
	// figure is that of a moment between the two. They are far apart where there is no
	// processor, or where the file system does not answer.
	Asked, Seen time.Time
}

// A Speed is how fast free space goes. It is believed at once and forgotten by and by. It
// is for one goroutine at a time; the zero value has no window, see [New].
type Speed struct {
	window  time.Duration
	forgets float64 // how much of the rate is forgotten in a second
	rate    float64 // bytes a second

	// from are the looks of the latest window, and the one before them if there is one, the
	// oldest first: at most steps and two.
	from []Look
	last Look
}

// steps is into how many parts the beginning of a window is told: looks that come closer
// after each other are not kept. So a speed is that of a window and an eighth at most, or
// else of a window and the time between two looks.
const steps = 8

// New returns a speed of which nothing has been seen. It is that of the latest window, or an
// earlier one as far as that is not forgotten: what goes evenly is never said to go more
// slowly than it does. What goes within a window counts as having taken all of it: the longer
// the window, the less a file that is allocated at once is taken for the beginning of more.
// Forgets is the part of the speed that is forgotten in a second; more than 1 is forgotten
// sooner.
func New(window time.Duration, forgets float64) Speed {
	return Speed{window: window, forgets: forgets}
}

// Take notes a look. One that is older than another one before tells nothing: between the
// two, space has not come back.
func (s *Speed) Take(l Look) {
	switch {
	case s.last.Asked.IsZero():
		s.from, s.last = append(s.from, l), l
		return
	case l.Asked.Before(s.last.Asked):
		return
	}
	s.rate *= max(0, 1-s.forgets*l.Seen.Sub(s.last.Seen).Seconds())
	// From the question to the answer: what has gone has had at most this long, and a speed
	// that is told too high ends work for nothing. The next look makes up for it.
	from := s.begin(l.Seen)
	took := l.Seen.Sub(from.Asked)
	s.rate = max(s.rate, float64(from.Free-l.Free)/max(took, s.window).Seconds())
	s.last = l
	if l.Asked.Sub(s.from[len(s.from)-1].Asked) >= s.window/steps {
		s.from = append(s.from, l)
	}
}

// begin returns the look with which a whole window begins that ends now, or the first one,
// and forgets those before. A window that began anew at each end would know nothing of what
// went just before that.
func (s *Speed) begin(now time.Time) Look {
	older := 0
	for older+1 < len(s.from) && now.Sub(s.from[older+1].Asked) >= s.window {
		older++
	}
	s.from = slices.Delete(s.from, 0, older)
	return s.from[0]
}

// Loss returns how many bytes will go in so much time, if it goes on like this.
func (s *Speed) Loss(ahead time.Duration) int64 { return int64(s.rate * ahead.Seconds()) }

// PerSecond returns the speed in bytes a second.
func (s *Speed) PerSecond() int64 { return int64(s.rate) }

// Forget drops all that was seen.
func (s *Speed) Forget() { s.rate, s.from, s.last = 0, s.from[:0], Look{} }
