package turns

import (
	"context"
	"time"
)

// A Station is one start of a simulated machine: its processes, its clock, and
// whether they go on. The methods that a process calls are those of
// [world.Turns].
type Station struct {
	Name string
	Tag  uint64 // whatever the owner of the scheduler knows it by

	s     *Scheduler
	procs []*process // that have not ended, in the order in which they began
	dirty bool       // what a process waits for may have come
	dead  bool

	pausedUntil int64

	rate   float64   // how fast its clock runs
	origin int64     // the scheduler's time at which its clock showed epoch
	epoch  time.Time // by its clock
}

// NewStation returns a station whose clock shows now and runs at rate, which is 1
// for a perfect one.
func (s *Scheduler) NewStation(name string, now time.Time, rate float64) *Station {
	st := &Station{Name: name, s: s, rate: rate, origin: s.now, epoch: now}
	s.stations = append(s.stations, st)
	return st
}

// Go starts a process. On a station that is dead it does nothing.
func (st *Station) Go(name string, fn func()) {
	if st.dead {
		return
	}
	p := newProcess(st, name, fn)
	st.procs = append(st.procs, p)
	st.s.wake(p)
}

// Until gives the turn away, and returns when ready returns true and it is this
// process's turn again. When the station has been killed meanwhile it does not
// return.
func (st *Station) Until(ready func() bool) {
	p := st.s.current
	if p == nil {
		st.s.Until(ready)
		return
	}
	if p.station != st {
		st.s.fail("process %d (%s) of %s waits at %s", p.id, p.name, p.station.Name, st.Name)
	}
	p.wait(ready)
}

// Sleep waits for d or until ctx ends, and reports whether ctx still goes on.
func (st *Station) Sleep(ctx context.Context, d time.Duration) bool {
	due := st.after(d)
	st.s.at(timer{at: due, st: st})
	st.Until(func() bool { return st.s.now >= due || ctx.Err() != nil })
	return ctx.Err() == nil
}

// Now returns the time by the station's clock.
func (st *Station) Now() time.Time {
	return st.epoch.Add(time.Duration(float64(st.s.now-st.origin) * st.rate))
}

// after returns the scheduler's time when d has passed by the station's clock.
func (st *Station) after(d time.Duration) int64 {
	return st.s.now + max(int64(float64(d)/st.rate), 0)
}

// Touch tells that what processes of the station wait for may have come through
// something that none of them has done.
func (st *Station) Touch() {
	if !st.dirty && !st.dead {
		st.dirty = true
		st.s.dirty = append(st.s.dirty, st)
	}
}

// Pause lets none of its processes run for d. Its clock goes on, as it does for a
// process that is stopped.
func (st *Station) Pause(d time.Duration) {
	st.pausedUntil = max(st.pausedUntil, st.s.now+int64(d))
	st.s.at(timer{at: st.pausedUntil, st: st})
}

// Unpause ends a pause now.
func (st *Station) Unpause() { st.pausedUntil = 0 }

// Paused reports whether the station is paused.
func (st *Station) Paused() bool { return st.pausedUntil > st.s.now }

// Stall gives one process, which the dice choose, no turn for d.
func (st *Station) Stall(d time.Duration) string {
	if len(st.procs) == 0 {
		return "nobody"
	}
	p := st.procs[st.s.dice.IntN(len(st.procs))]
	p.stalled = st.s.now + int64(d)
	st.s.at(timer{at: p.stalled, st: st})
	return p.name
}

// Dead reports whether the station was killed.
func (st *Station) Dead() bool { return st.dead }

// Kill ends all its processes, wherever they wait: their deferred calls run, and
// no other code. It must not be called by one of them.
func (st *Station) Kill() {
	if st.dead {
		return
	}
	st.dead = true
	st.dirty = false
	for i := 0; i < len(st.procs); i++ { //nolint:intrange // it may grow
		st.procs[i].kill()
	}
	st.procs = nil
	st.s.forget(st)
}

// Processes lists what its processes are called, for a report of what waits.
func (st *Station) Processes() []string {
	names := make([]string, 0, len(st.procs))
	for _, p := range st.procs {
		names = append(names, p.name)
	}
	return names
}
