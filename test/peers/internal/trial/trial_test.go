package trial

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/raftyard/raftyard/test/peers/internal/system"
)

// A fake system counts in memory.
type fake struct {
	count  [4]atomic.Uint64
	calls  atomic.Uint64
	closed bool

	takes time.Duration
	// odd says how a call ends, by its number; nil: well.
	odd func(call uint64) error
	// loses forgets every command of this call.
	loses uint64
	fails error // at the start
}

func (f *fake) Start(context.Context, system.Config) error { return f.fails }

func (f *fake) Propose(ctx context.Context, _, group int, _ []byte) (uint64, error) {
	call := f.calls.Add(1)
	if err := sleep(ctx, f.takes); err != nil {
		return 0, err
	}
	if f.odd != nil {
		if err := f.odd(call); err != nil {
			return 0, err
		}
	}
	if call == f.loses {
		return 1, nil
	}
	return f.count[group].Add(1), nil
}

func (f *fake) Read(_ context.Context, _, group int) (uint64, error) {
	switch f.calls.Add(1) % 4 {
	case 0:
		return 0, system.Refused(errors.New("busy"))
	case 1:
		return 0, errors.New("timed out")
	default:
		return f.count[group].Load(), nil
	}
}

func (f *fake) Close() error {
	f.closed = true
	return nil
}

func spec(t *testing.T, op string) *Spec {
	t.Helper()
	return &Spec{
		Op: op, Groups: 4, Clients: 3, Size: 16, Hosts: 3, Dir: t.TempDir(),
		Warmup: 20 * time.Millisecond, Duration: 100 * time.Millisecond,
	}
}

func TestWrite(t *testing.T) {
	f := &fake{takes: time.Millisecond}
	r, err := Run(t.Context(), f, spec(t, Write))
	if err != nil {
		t.Fatal(err)
	}
	if !f.closed {
		t.Errorf("the system was not closed")
	}
	if r.Ops == 0 || r.Ops >= r.Acknowledged || r.Acknowledged != r.Applied {
		t.Errorf("%d of %d commands are of the measured time, %d are there, want some, and all",
			r.Ops, r.Acknowledged, r.Applied)
	}
	if r.PerSecond == 0 || r.Latency.P50 < 1000 || r.Latency.P99 < r.Latency.P50 ||
		r.AllocsPerOp == 0 || r.RSS == 0 || r.Heap == 0 || r.SyncP50 == 0 || r.CPUPerOp == 0 {
		t.Errorf("the result is %+v", r)
	}
	for g := range f.count {
		if f.count[g].Load() == 0 {
			t.Errorf("group %d got nothing", g)
		}
	}
}

// TestLost: a system that loses what it has acknowledged is not fast but wrong.
func TestLost(t *testing.T) {
	_, err := Run(t.Context(), &fake{takes: time.Millisecond, loses: 7}, spec(t, Write))
	if err == nil || !strings.Contains(err.Error(), "were acknowledged") {
		t.Errorf("a command was lost, the trial ends with %v", err)
	}
}

func TestRefusedAndFailed(t *testing.T) {
	f := &fake{odd: func(call uint64) error {
		switch call % 3 {
		case 1:
			return system.Refused(errors.New("busy"))
		case 2:
			return errors.New("odd")
		default:
			return nil
		}
	}}
	r, err := Run(t.Context(), f, spec(t, Write))
	if err != nil {
		t.Fatal(err)
	}
	if r.Refusals == 0 || r.Failures == 0 || r.Ops == 0 || r.Failure != "odd" {
		t.Errorf("the result is %+v, want some of each", r)
	}
}

func TestReadAndIdle(t *testing.T) {
	f := &fake{}
	r, err := Run(t.Context(), f, spec(t, Read))
	if err != nil || r.Ops == 0 || r.Refusals == 0 {
		t.Errorf("reads: %+v, %v", r, err)
	}
	f = &fake{}
	r, err = Run(t.Context(), f, spec(t, Idle))
	if err != nil || r.Ops != 0 || f.calls.Load() != 0 || r.RSS == 0 || r.Seconds < 0.1 {
		t.Errorf("idle, with %d calls: %+v, %v", f.calls.Load(), r, err)
	}
}

func TestRunFails(t *testing.T) {
	odd := errors.New("odd")
	f := &fake{fails: odd}
	if _, err := Run(t.Context(), f, spec(t, Idle)); !errors.Is(err, odd) || !f.closed {
		t.Errorf("a start that fails: %v, closed: %t", err, f.closed)
	}
	if _, err := Run(t.Context(), &fake{}, spec(t, "dance")); err == nil {
		t.Errorf("an operation that there is not is accepted")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	s := spec(t, Write)
	s.Duration = time.Hour
	if _, err := Run(ctx, &fake{takes: time.Hour}, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a trial that is interrupted ends with %v", err)
	}
}

// TestStripes: what the lock of one client is in is not what that of another is in.
func TestStripes(t *testing.T) {
	const line = 64 // bytes of memory that are moved together
	if size := unsafe.Sizeof(stripe{}); size%line != 0 {
		t.Errorf("a stripe has %d bytes, want a multiple of %d", size, line)
	}
}

func TestLatencies(t *testing.T) {
	l := newLatencies()
	for i := range 1000 {
		l.add(i, time.Duration(i+1)*time.Millisecond)
	}
	l.add(0, time.Hour)
	l.add(0, 0)
	n, got := l.sum()
	near := func(got, want float64) bool { return got >= want*0.998 && got <= want*1.002 }
	if n != 1002 || !near(got.P50, 500e3) || !near(got.P99, 991e3) || !near(got.Max, 300e6) {
		t.Errorf("%d latencies come to %+v", n, got)
	}
}
