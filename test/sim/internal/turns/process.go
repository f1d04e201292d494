package turns

import (
	"iter"
	"runtime"
	"runtime/debug"
)

// A process is a coroutine that takes turns with all others.
type process struct {
	id      uint64
	name    string
	station *Station

	resume func() (struct{}, bool) // lets it run until it waits, or ends
	cancel func()                  // ends one that has not begun
	yield  func(struct{}) bool     // called by the process: waits for its turn

	ready    func() bool // what it waits for; nil while it runs
	eligible bool        // ready has returned true
	begun    bool
	ended    bool
	dying    bool
	priority uint64 // for the policy that uses priorities
	stalled  int64  // it gets no turn before this time
}

// newProcess makes a coroutine that will run fn.
func newProcess(st *Station, name string, fn func()) *process {
	s := st.s
	s.lastID++
	p := &process{id: s.lastID, name: name, station: st, priority: s.dice.Uint64()}
	p.resume, p.cancel = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		defer p.end()
		fn()
	})
	p.ready, p.eligible = always, true
	return p
}

func always() bool { return true }

// end notes how the process has ended. A panic fails the simulation: in
// production it would have ended the program.
func (p *process) end() {
	p.ended = true
	if v := recover(); v != nil && !p.dying {
		p.station.s.panicked(p, v, debug.Stack())
	}
}

// wait gives the turn away until the scheduler gives it back.
func (p *process) wait(ready func() bool) {
	if p.dying {
		runtime.Goexit()
	}
	p.ready = ready
	p.yield(struct{}{})
	p.ready = nil
	if p.dying {
		runtime.Goexit()
	}
}

// kill ends the process: its deferred calls run, and nothing else of it. The
// coroutine passes its Goexit on to whoever resumes it, hence the goroutine.
func (p *process) kill() {
	p.dying = true
	if !p.begun {
		p.ended = true
		p.cancel()
		return
	}
	s := p.station.s
	before := s.current
	s.current = p
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.resume()
	}()
	<-done
	s.current = before
}
