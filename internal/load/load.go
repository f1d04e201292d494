package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// An Outcome is how an operation has ended.
type Outcome int

// Outcomes of an operation.
const (
	Applied    Outcome = iota // it is done
	NotApplied                // it had no effect and will have none
	Unknown                   // nobody can tell
)

// Config says what [Run] does. Clients, Duration, Kinds and Do must be given.
type Config struct {
	Clients  int           // how many operations are under way at most
	Rate     float64       // operations that are due in a second; zero: a closed loop
	Warmup   time.Duration // load before the measurement
	Duration time.Duration // of the measurement

	// Kinds is how many kinds of operations there are; Kind tells which operation n is,
	// from 0 on. Operations are numbered in the order in which they are due. A nil Kind
	// makes all of kind 0.
	Kinds int
	Kind  func(n uint64) int
	// Do does operation n. It is called by as many goroutines as there are clients, and
	// must end soon after ctx does.
	Do func(ctx context.Context, client int, n uint64) (Outcome, error)

	// Grace is how long operations may still take when Run is interrupted; then their
	// context ends. Default: 2s.
	Grace time.Duration
	// Pause is how long a client of a closed loop waits after an operation that was not
	// applied, so that a system which refuses is not asked as fast as it can. Default: 50ms.
	Pause time.Duration
	// Progress is called every second; nil: it is not.
	Progress func(Progress)
}

// validate reports every problem in c.
func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("load: config: "+format, args...))
		}
	}
	check(c.Clients > 0, "Clients is %d, want at least 1", c.Clients)
	check(c.Rate >= 0 && c.Rate <= float64(time.Second), "Rate is %v, want 0 to 1e9", c.Rate)
	check(c.Duration > 0, "Duration is %v, want more than 0", c.Duration)
	check(c.Warmup >= 0, "Warmup is %v, want 0 or more", c.Warmup)
	check(c.Kinds > 0, "Kinds is %d, want at least 1", c.Kinds)
	check(c.Do != nil, "Do is nil")
	return errors.Join(errs...)
}

// Progress is how a run stands.
type Progress struct {
	Warming   bool
	Elapsed   time.Duration // of the warm-up or of the measurement
	Of        time.Duration
	PerSecond float64       // applied, since the last Progress
	P99       time.Duration // since the last Progress
	Failed    uint64        // not applied or unknown, since the begin of the run
}

// A Tally sums up the operations of one kind that were due in the measured time.
type Tally struct {
	Applied    uint64
	NotApplied uint64
	Unknown    uint64
	// Late were due and not begun when the run ended: there was no client free.
	Late uint64
	// Latency is of the operations that were applied, of those with an unknown outcome,
	// which took at least as long, and of late ones, which did, too. It begins when an
	// operation is due, which is when it begins in a closed loop.
	Latency Histogram
}

// A Report is what a run came to.
type Report struct {
	// Elapsed is the measured time, until the last operation had ended that was due in it.
	Elapsed     time.Duration
	Kinds       []Tally
	Interrupted bool  // ctx has ended it
	Err         error // why an operation was not applied, or its outcome is not known
}

// Run runs the load and waits for all operations that it has begun. The end of ctx ends it
// early. An error means that cfg makes no sense and nothing was done.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Grace = cmp.Or(cfg.Grace, 2*time.Second)
	cfg.Pause = cmp.Or(cfg.Pause, 50*time.Millisecond)
	background := context.WithoutCancel(ctx)
	ops, cancelOps := context.WithCancel(background)
	defer cancelOps()
	over, end := context.WithCancel(background)
	defer end()
	begin := time.Now()
	r := &run{
		cfg: cfg, ops: ops, over: over, begin: begin, measure: begin.Add(cfg.Warmup),
		last: begin,
	}
	r.planned = r.measure.Add(cfg.Duration)
	r.report.Kinds = make([]Tally, cfg.Kinds)

	var clients sync.WaitGroup
	for i := range cfg.Clients {
		clients.Go(func() { r.client(i) })
	}
	done := make(chan struct{})
	go func() {
		clients.Wait()
		close(done)
	}()
	r.watch(ctx, end)
	select {
	case <-done:
	case <-ctx.Done():
		r.report.Interrupted = true
		defer time.AfterFunc(cfg.Grace, cancelOps).Stop()
		<-done
	}
	return r.result(), nil
}

// A run is one call of [Run].
type run struct {
	cfg     Config
	ops     context.Context // of the operations
	over    context.Context // ends when no more operation is begun; ended says when it was
	begin   time.Time
	measure time.Time     // the end of the warm-up
	planned time.Time     // the end of the measurement
	ended   atomic.Int64  // nanoseconds since begin, once over has ended
	next    atomic.Uint64 // number of the next operation

	mu     sync.Mutex
	report Report
	last   time.Time // the last end of a measured operation
	// Since the last Progress:
	applied uint64
	recent  Histogram
	failed  uint64 // since the begin
}

// watch waits until the time is up, or ctx ends, and shows progress.
func (r *run) watch(ctx context.Context, end context.CancelFunc) {
	timer := time.NewTimer(time.Until(r.planned))
	defer timer.Stop()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for waiting := true; waiting; {
		select {
		case <-ticks.C:
			r.progress()
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			r.report.Interrupted = true
			waiting = false
		}
	}
	r.ended.Store(int64(min(time.Since(r.begin), r.planned.Sub(r.begin))))
	end()
}

// client begins one operation after the other.
func (r *run) client(id int) {
	for {
		n := r.next.Add(1) - 1
		due, begun := r.await(n)
		switch {
		case begun:
		case r.cfg.Rate > 0 && due.Before(r.endTime()):
			r.late(n, due)
			continue
		default:
			return
		}
		outcome, err := r.cfg.Do(r.ops, id, n)
		r.record(n, due, outcome, err)
		if outcome == NotApplied && r.cfg.Rate == 0 {
			r.sleep(r.cfg.Pause)
		}
	}
}

// await waits until operation n is due, and reports whether it may begin.
func (r *run) await(n uint64) (due time.Time, begin bool) {
	if r.cfg.Rate == 0 {
		return time.Now(), r.over.Err() == nil
	}
	due = r.begin.Add(time.Duration(float64(n) / r.cfg.Rate * float64(time.Second)))
	if !due.Before(r.planned) {
		return due, false
	}
	return due, r.sleep(time.Until(due))
}

// sleep waits, and reports whether operations may still begin.
func (r *run) sleep(d time.Duration) bool {
	if d <= 0 {
		return r.over.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r.over.Err() == nil
	case <-r.over.Done():
		return false
	}
}

// endTime returns when the run has ended, or will.
func (r *run) endTime() time.Time {
	if r.over.Err() == nil {
		return r.planned
	}
	return r.begin.Add(time.Duration(r.ended.Load()))
}

func (r *run) kindOf(n uint64) int {
	if r.cfg.Kind == nil {
		return 0
	}
	return r.cfg.Kind(n)
}

// late counts an operation that was due and not begun.
func (r *run) late(n uint64, due time.Time) {
	if due.Before(r.measure) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.report.Kinds[r.kindOf(n)]
	t.Late++
	t.Latency.Add(r.endTime().Sub(due))
}

// record counts an operation that has ended just now.
func (r *run) record(n uint64, due time.Time, outcome Outcome, err error) {
	now := time.Now()
	took := now.Sub(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	if outcome == Applied {
		r.applied++
		r.recent.Add(took)
	} else {
		r.failed++
	}
	if due.Before(r.measure) {
		return
	}
	r.last = now
	t := &r.report.Kinds[r.kindOf(n)]
	switch outcome {
	case Applied:
		t.Applied++
		t.Latency.Add(took)
	case NotApplied:
		t.NotApplied++
	case Unknown:
		t.Unknown++
		t.Latency.Add(took)
	}
	if outcome != Applied && r.report.Err == nil {
		r.report.Err = err
	}
}

// progress tells how far it is.
func (r *run) progress() {
	if r.cfg.Progress == nil {
		return
	}
	now := time.Now()
	p := Progress{Elapsed: now.Sub(r.measure), Of: r.cfg.Duration}
	if now.Before(r.measure) {
		p = Progress{Warming: true, Elapsed: now.Sub(r.begin), Of: r.cfg.Warmup}
	}
	r.mu.Lock()
	p.PerSecond, p.P99, p.Failed = float64(r.applied), r.recent.Quantile(0.99), r.failed
	r.applied, r.recent = 0, Histogram{}
	r.mu.Unlock()
	r.cfg.Progress(p)
}

// result returns the report of a run whose clients have all ended.
func (r *run) result() *Report {
	end := r.endTime()
	if r.last.After(end) {
		end = r.last
	}
	r.report.Elapsed = max(end.Sub(r.measure), 0)
	return &r.report
}
