package node

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// surroundings are what the node touches outside of its own memory. It starts every
// goroutine through them, waits, looks at the clock and throws dice through them, so
// that the simulator can put its own in their place. See package world.
type surroundings struct {
	turns world.Turns // nil: goroutines run when they like
	dice  world.Dice  // nil: real ones
	files vfs.FS

	timers sync.Pool // of *time.Timer that have been stopped
}

func newSurroundings(w *world.World) *surroundings {
	if w == nil {
		return &surroundings{files: vfs.OS{}}
	}
	return &surroundings{turns: w.Turns, dice: w.Dice, files: w.Files}
}

// A process is something that runs beside the rest, and that somebody waits for.
type process struct {
	s    *surroundings
	done chan struct{} // closed when it has returned
}

// spawn runs fn beside the rest. The name is for traces.
func (s *surroundings) spawn(name string, fn func()) process {
	p := process{s: s, done: make(chan struct{})}
	run := func() {
		defer close(p.done)
		fn()
	}
	if s.turns != nil {
		s.turns.Go(name, run)
	} else {
		go run()
	}
	return p
}

// wait returns when the process has.
func (p process) wait() { await[struct{}](p.s, nil, p.done, nil) }

type processes []process

// wait returns when all of them have.
func (ps processes) wait() {
	for _, p := range ps {
		p.wait()
	}
}

// all runs fns beside each other and returns when all have.
func (s *surroundings) all(name string, fns []func()) {
	ps := make(processes, 0, len(fns))
	for _, fn := range fns {
		ps = append(ps, s.spawn(name, fn))
	}
	ps.wait()
}

// each runs fn for everything in list, for atOnce at the same time, and returns when that is
// done. Whoever is through with one goes on with the next: one that takes long holds up none
// but itself.
func each[T any](s *surroundings, name string, atOnce int, list []T, fn func(T)) {
	next := make(chan T, len(list))
	for _, v := range list {
		next <- v
	}
	close(next)
	fns := make([]func(), min(len(list), atOnce))
	for i := range fns {
		fns[i] = func() {
			for v := range next {
				fn(v)
			}
		}
	}
	s.all(name, fns)
}

// until returns, in a simulation, when ready is true. It comes before whatever
// really waits for that.
func (s *surroundings) until(ready func() bool) {
	if s.turns != nil {
		s.turns.Until(ready)
	}
}

// yield lets what is ready to run go first. Whoever takes what has gathered for it does so
// before it takes: what comes at the same time comes together then. Where nothing else is
// ready it costs less than a microsecond, so one that is alone waits for nobody.
func (s *surroundings) yield() {
	if s.turns == nil {
		runtime.Gosched()
	}
}

// A source is which of the channels given to await has ended the wait.
type source uint8

const (
	fromValues source = iota
	fromFirst
	fromSecond
)

// await waits for a value from a buffered channel, or for one of two others to be
// closed. Each of them may be nil.
func await[T any](
	s *surroundings, values <-chan T, first, second <-chan struct{},
) (v T, from source) {
	if s.turns != nil {
		return awaitTurn(s.turns, values, first, second)
	}
	select {
	case v = <-values:
		return v, fromValues
	case <-first:
		return v, fromFirst
	case <-second:
		return v, fromSecond
	}
}

// awaitTurn is await in a simulation, where chance must not choose among several
// that have come.
func awaitTurn[T any](
	turns world.Turns, values <-chan T, first, second <-chan struct{},
) (v T, from source) {
	turns.Until(func() bool { return len(values) > 0 || isClosed(first) || isClosed(second) })
	switch {
	case len(values) > 0:
		return <-values, fromValues
	case isClosed(first):
		return v, fromFirst
	default:
		return v, fromSecond
	}
}

// bounds end a wait for a value: three channels when they are closed, any of which may be
// nil, and the clock after the limit, unless that is zero.
//
// The first and the third are for what hardly ever happens and concerns many waits at once,
// and that these mostly hear of as a value: they end a wait some time later, within
// [lookEvery].
type bounds struct {
	first, second, third <-chan struct{}
	limit                time.Duration
}

// lookEvery is how often a wait looks whether its first or its third bound is reached. To wait
// for them as well would take a lock of each twice, which all who wait have in common: a tenth
// of what a command costs when there are two thousand.
const lookEvery = 100 * time.Millisecond

// An ending is what has ended a wait with bounds.
type ending uint8

const (
	byValue ending = iota
	byFirst
	bySecond
	byThird
	byClock
)

// awaitWithin waits for a value from a buffered channel, or for one of the bounds.
func (s *surroundings) awaitWithin(values <-chan struct{}, b bounds) ending {
	if s.turns != nil {
		return awaitTurnWithin(s.turns, values, b)
	}
	wait := b.untilLook(b.limit)
	t := s.timer(wait)
	defer s.putTimer(t)
	var deadline time.Time // known after the first look: most waits end before that
	for {
		select {
		case <-values:
			return byValue
		case <-b.second:
			return bySecond
		case now := <-t.C:
			if b.limit > 0 && deadline.IsZero() {
				deadline = now.Add(b.limit - wait)
			}
			if end, reached := b.look(deadline); reached {
				return end
			}
			t.Reset(b.untilLook(time.Until(deadline)))
		}
	}
}

// untilLook is how long a wait goes on before its next look, with so much left of the limit.
func (b *bounds) untilLook(left time.Duration) time.Duration {
	if b.limit == 0 {
		return lookEvery
	}
	return min(left, lookEvery)
}

// look reports whether the wait is at its end.
func (b *bounds) look(deadline time.Time) (end ending, reached bool) {
	switch {
	case isClosed(b.first):
		return byFirst, true
	case isClosed(b.third):
		return byThird, true
	default:
		return byClock, b.limit > 0 && !time.Now().Before(deadline)
	}
}

// awaitTurnWithin is awaitWithin in a simulation.
func awaitTurnWithin(turns world.Turns, values <-chan struct{}, b bounds) ending {
	var clock <-chan struct{}
	if b.limit > 0 {
		ctx, cancel := turns.WithTimeout(context.Background(), b.limit)
		defer cancel()
		clock = ctx.Done()
	}
	turns.Until(func() bool {
		return len(values) > 0 || isClosed(b.first) || isClosed(b.second) ||
			isClosed(b.third) || isClosed(clock)
	})
	switch {
	case len(values) > 0:
		<-values
		return byValue
	case isClosed(b.first):
		return byFirst
	case isClosed(b.second):
		return bySecond
	case isClosed(b.third):
		return byThird
	default:
		return byClock
	}
}

// timer returns a timer that runs for d, to be given back.
func (s *surroundings) timer(d time.Duration) *time.Timer {
	if t, ok := s.timers.Get().(*time.Timer); ok {
		t.Reset(d) // it was stopped, so nothing is in its channel
		return t
	}
	return time.NewTimer(d)
}

func (s *surroundings) putTimer(t *time.Timer) {
	t.Stop()
	s.timers.Put(t)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sleep waits for d or until ctx ends, and reports whether ctx still goes on.
func (s *surroundings) sleep(ctx context.Context, d time.Duration) bool {
	if s.turns != nil {
		return s.turns.Sleep(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// every calls fn at an interval until ctx ends.
func (s *surroundings) every(ctx context.Context, d time.Duration, fn func()) {
	if s.turns != nil {
		for s.turns.Sleep(ctx, d) {
			fn()
		}
		return
	}
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}

// withTimeout is context.WithTimeout by the node's clock.
func (s *surroundings) withTimeout(
	ctx context.Context, d time.Duration,
) (context.Context, context.CancelFunc) {
	if s.turns != nil {
		return s.turns.WithTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}

func (s *surroundings) now() time.Time {
	if s.turns != nil {
		return s.turns.Now()
	}
	return time.Now()
}

// roll returns a number below n, which must be more than zero.
func (s *surroundings) roll(n int64) int64 {
	if s.dice != nil {
		return int64(s.dice.Uint64() % uint64(n))
	}
	return rand.Int64N(n)
}

// newID returns a random id, of version 4. Reading the bytes right here costs no allocation;
// each command has an id.
func (s *surroundings) newID() uuid.UUID {
	if s.dice != nil {
		return s.dice.UUID()
	}
	var id uuid.UUID
	_, _ = crand.Read(id[:]) // it never fails: it ends the program
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// openStore opens the log store on the node's disk.
func openStore(o storage.Options, w *world.World) (*storage.Store, error) {
	if w == nil {
		return storage.Open(o)
	}
	return storage.OpenOn(o, storage.Backing{
		Files: w.Files, OpenDB: w.OpenDB, UUID: w.UUID, Until: w.Until,
	})
}

// listen connects a node to the network of its world, or else of its Config.
func listen(cfg transport.Config, network Network, w *world.World) (world.Carrier, error) {
	switch {
	case w != nil:
		return w.Listen(cfg)
	case network != nil:
		// The endpoint is returned only when it is one: a nil pointer in an interface
		// is not nil.
		e, err := network.Endpoint(cfg)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	t, err := transport.Listen(cfg)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return t, nil
}

// keepStore does now and then what the log store would do on a goroutine of its own,
// which it has not got in a simulation.
func (n *Node) keepStore() {
	n.world.every(n.running, keepEvery, func() {
		if err := n.store.Keep(); err != nil && n.store.Err() == nil {
			n.logger.Warn("log store", errAttr(err))
		}
	})
}

// keepEvery is how often keepStore does so.
const keepEvery = 100 * time.Millisecond
