package node

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The limits of a sync, see [Config.SlowSync], and what follows from them.
const (
	defaultSlowSync  = time.Second
	defaultStuckSync = 10 * time.Second
	defaultFailSync  = 20 * time.Second

	// slowTimes is how many times slower than that of half of the other nodes a disk
	// must be to be called slow: when all are slow, nothing is gained by moving.
	slowTimes = 4

	// syncWeight is what the latest sync counts in the average: one in so many.
	syncWeight = 8

	// maxGap is how far apart two looks are at most, unless the process stood still.
	maxGap = 10 * slowEvery

	// recovery is how long a slow disk must have been well to be well.
	recovery = 10 * time.Second
)

// errStuck: a sync has not come back. Nobody knows what of it is on the disk.
var errStuck = errors.New("the disk does not answer")

// A slowness is what is known of how long the disk takes to make something durable. Those
// who sync tell it; the node's clock looks at it.
type slowness struct {
	limits syncLimits
	muted  atomic.Bool // leads nothing: the disk is stuck

	mu       sync.Mutex
	began    map[syncKind]time.Time // of what is under way
	average  time.Duration
	last     time.Time // when the last one was over
	worst    time.Duration
	slow     bool
	shedding bool
	ill      time.Time // when it was slow for the last time
	looked   time.Time
}

// A syncKind is something that is synced by one process at a time.
type syncKind uint8

const (
	syncLog syncKind = iota
	syncProbe
)

// syncLimits are those of the Config.
type syncLimits struct{ slow, stuck, fail time.Duration }

// begin hears that a sync begins.
func (s *slowness) begin(k syncKind, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began == nil {
		s.began = make(map[syncKind]time.Time)
	}
	s.began[k] = now
}

// end hears that it is over.
func (s *slowness) end(k syncKind, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := now.Sub(s.began[k])
	delete(s.began, k)
	s.last = now
	s.average += (took - s.average) / syncWeight
	s.worst = max(s.worst, took)
}

// waitLog hears that the sync of the log, if it is under way, waits for something else than
// the disk. Those of other kinds do not.
func (s *slowness) waitLog(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.began[syncLog]; ok {
		s.began[syncLog] = now
	}
}

// inFlight returns for how long the oldest sync has been under way.
func (s *slowness) inFlightLocked(now time.Time) (age time.Duration) {
	for _, at := range s.began {
		age = max(age, now.Sub(at))
	}
	return age
}

// takesLocked is how long a sync takes, as far as it can be told now.
func (s *slowness) takesLocked(now time.Time) time.Duration {
	return max(s.average, s.inFlightLocked(now))
}

// A verdict is what a look at the slowness has shown.
type verdict struct {
	slow, stuck bool
	changed     bool
	takes       time.Duration
	failed      error // the process must end
}

// judge looks how the disk is. others are how long syncs take on other nodes, first says
// whether this one is the first to give leaderships away among those that are slow.
func (s *slowness) judge(now time.Time, others []time.Duration, first bool) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gap := now.Sub(s.looked); !s.looked.IsZero() && gap > maxGap {
		// The process has stood still, and with it what waits for the disk.
		for k, at := range s.began {
			s.began[k] = at.Add(gap)
		}
	}
	age := s.inFlightLocked(now)
	if age == 0 && !s.looked.IsZero() {
		s.forgetLocked(now.Sub(s.looked))
	}
	s.looked = now
	v := verdict{takes: s.takesLocked(now), stuck: age >= s.limits.stuck}
	limit := s.limits.slow
	if s.slow {
		limit /= 2
	}
	if v.takes >= limit && (v.takes >= slowTimes*median(others) || age >= s.limits.slow) {
		s.ill = now
		v.slow = true
	}
	v.slow = v.slow || (s.slow && now.Sub(s.ill) < recovery)
	v.changed = v.slow != s.slow || v.stuck != s.muted.Load()
	s.slow, s.shedding = v.slow, v.slow && first
	s.muted.Store(v.stuck)
	if age >= s.limits.fail {
		v.failed = fmt.Errorf("%w: a sync has been under way for %v", errStuck,
			age.Round(time.Millisecond))
	}
	return v
}

// forgetLocked lets the average of a disk that nobody writes to fall: by half in 5 s.
func (s *slowness) forgetLocked(passed time.Duration) {
	if s.last.IsZero() || s.looked.Before(s.last) {
		return
	}
	s.average -= time.Duration(float64(s.average) * min(1, passed.Seconds()/7))
}

// condition is what others are told.
func (s *slowness) condition(now time.Time) condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := condition{
		Sync: s.takesLocked(now), Slow: s.slow, Stuck: s.muted.Load(), Shedding: s.shedding,
	}
	if !s.last.IsZero() {
		c.Synced = now.Sub(s.last)
	}
	return c
}

// syncTimes are figures of the syncs.
type syncTimes struct{ average, worst, inFlight time.Duration }

func (s *slowness) times(now time.Time) syncTimes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return syncTimes{average: s.average, worst: s.worst, inFlight: s.inFlightLocked(now)}
}

// median returns the lower middle one, zero if there is none.
func median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	ds = slices.Sorted(slices.Values(ds))
	return ds[(len(ds)-1)/2]
}
