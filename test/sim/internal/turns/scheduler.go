package turns

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Policy says how the next process is picked.
type Policy uint8

// The policies.
const (
	// Uniform gives everybody who can go on the same chance.
	Uniform Policy = iota

	// Priorities lets the process with the highest priority run; now and then the
	// dice give a process another one. It finds what needs a rare order of a few
	// events.
	Priorities

	// Fair lets processes run in the order in which they could go on.
	Fair
	numPolicies
)

// Config holds the settings of a [Scheduler].
type Config struct {
	Dice   *rand.Rand
	Policy Policy

	// MaxIdle is how many turns may pass without the time going on to a timer
	// before the simulation is taken for an endless loop.
	MaxIdle int

	// AfterTurn, if set, is called after each turn, with the station and the name of
	// the process that has had it. It must not wait.
	AfterTurn func(st *Station, id uint64, name string)
}

// Scheduler runs the processes of all stations.
type Scheduler struct {
	dice     *rand.Rand
	policy   Policy
	maxIdle  int
	observer func(*Station, uint64, string)

	now    int64 // nanoseconds since the beginning
	timers timers
	seq    uint64

	stations []*Station // that are alive
	dirty    []*Station // to be asked what can go on
	waiting  []*process // can go on, in the order in which they could
	choice   []int      // scratch
	current  *process   // that runs; nil while the driver does
	lastID   uint64
	turns    uint64
	idle     int
	err      error
}

// New returns a scheduler at time zero.
func New(cfg Config) *Scheduler {
	if cfg.MaxIdle == 0 {
		cfg.MaxIdle = 2_000_000
	}
	return &Scheduler{
		dice: cfg.Dice, policy: cfg.Policy % numPolicies,
		maxIdle: cfg.MaxIdle, observer: cfg.AfterTurn,
	}
}

// Time returns the virtual time since the beginning.
func (s *Scheduler) Time() time.Duration { return time.Duration(s.now) }

// Turns returns how many turns were taken.
func (s *Scheduler) Turns() uint64 { return s.turns }

// Err returns what has ended the simulation before its time, or nil.
func (s *Scheduler) Err() error { return s.err }

// Fail ends the simulation: the driver's Until returns at once from then on.
func (s *Scheduler) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *Scheduler) fail(format string, args ...any) { s.Fail(fmt.Errorf(format, args...)) }

// PanicError is a panic of a process.
type PanicError struct {
	Process string
	Value   any
	Stack   []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic in process %s: %v\n%s", e.Process, e.Value, e.Stack)
}

func (s *Scheduler) panicked(p *process, v any, stack []byte) {
	s.Fail(&PanicError{Process: p.station.Name + "/" + p.name, Value: v, Stack: stack})
}

// At has fn called at a time since the beginning, between two turns. fn must not
// wait.
func (s *Scheduler) At(at int64, fn func()) { s.at(timer{at: at, fn: fn}) }

// After has fn called when d has passed.
func (s *Scheduler) After(d time.Duration, fn func()) { s.At(s.now+max(int64(d), 0), fn) }

func (s *Scheduler) at(t timer) {
	s.seq++
	t.seq = s.seq
	s.timers.push(t)
}

// Until is how the driver waits: it lets the others have their turns until ready
// returns true, and reports whether it does. It is false when the simulation has
// failed; see Err.
func (s *Scheduler) Until(ready func() bool) bool {
	for s.err == nil {
		if ready() {
			return true
		}
		s.turn()
	}
	return false
}

// turn lets one process run, or time pass.
func (s *Scheduler) turn() {
	s.due()
	s.ask()
	p := s.pick()
	if p == nil {
		s.jump()
		return
	}
	if s.idle++; s.idle > s.maxIdle {
		s.fail("no end of turns at %v; the last was of %s/%s", s.Time(), p.station.Name, p.name)
		return
	}
	// A turn takes time, so that timers come between turns, too.
	s.now += 500 + int64(s.dice.Uint32()&4095)
	s.run(p)
}

// run gives p the turn.
func (s *Scheduler) run(p *process) {
	p.begun, p.eligible = true, false
	s.turns++
	s.current = p
	p.resume()
	s.current = nil
	st := p.station
	if p.ended {
		st.procs = slices.DeleteFunc(st.procs, func(q *process) bool { return q == p })
	}
	st.Touch()
	if s.observer != nil {
		s.observer(st, p.id, p.name)
	}
}

// due does what timers are due for.
func (s *Scheduler) due() {
	for len(s.timers) > 0 && s.timers[0].at <= s.now {
		t := s.timers.pop()
		if t.fn != nil {
			t.fn()
		} else {
			t.st.Touch()
		}
	}
}

// ask finds out which processes can go on that could not before.
func (s *Scheduler) ask() {
	for _, st := range s.dirty {
		if !st.dirty { // it has died
			continue
		}
		st.dirty = false
		for _, p := range st.procs {
			if !p.eligible && p.ready != nil && p.ready() {
				s.wake(p)
			}
		}
	}
	s.dirty = s.dirty[:0]
}

func (s *Scheduler) wake(p *process) {
	p.eligible = true
	s.waiting = append(s.waiting, p)
}

// pick takes the process whose turn it is out of those that can go on. One that
// cannot any more, because another was first, waits again.
func (s *Scheduler) pick() *process {
	for {
		s.choice = s.choice[:0]
		for i, p := range s.waiting {
			if p.stalled <= s.now && p.station.pausedUntil <= s.now {
				s.choice = append(s.choice, i)
			}
		}
		if len(s.choice) == 0 {
			return nil
		}
		i := s.choose()
		p := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		if p.ready() {
			return p
		}
		p.eligible = false
	}
}

// choose returns which of those that can go on does.
func (s *Scheduler) choose() int {
	switch s.policy {
	case Priorities:
		best := s.choice[0]
		for _, i := range s.choice {
			if s.waiting[i].priority > s.waiting[best].priority {
				best = i
			}
		}
		if s.dice.Uint32()&31 == 0 {
			s.waiting[best].priority = s.dice.Uint64()
		}
		return best
	case Fair:
		return s.choice[0]
	default:
		return s.choice[s.dice.IntN(len(s.choice))]
	}
}

// jump lets time pass until the next timer.
func (s *Scheduler) jump() {
	if len(s.timers) == 0 {
		s.fail("nothing can go on, and no timer is set:\n%s", s.waitList())
		return
	}
	s.idle = 0
	s.now = max(s.now, s.timers[0].at)
}

// waitList says who waits.
func (s *Scheduler) waitList() string {
	var b strings.Builder
	for _, st := range s.stations {
		fmt.Fprintf(&b, "  %s: %s\n", st.Name, strings.Join(st.Processes(), ", "))
	}
	return b.String()
}

// forget drops a station that is dead, with all that waits there.
func (s *Scheduler) forget(st *Station) {
	s.stations = slices.DeleteFunc(s.stations, func(o *Station) bool { return o == st })
	s.waiting = slices.DeleteFunc(s.waiting, func(p *process) bool { return p.station == st })
}

// Close kills every station.
func (s *Scheduler) Close() {
	for len(s.stations) > 0 {
		s.stations[len(s.stations)-1].Kill()
	}
}
