package load

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// taking returns an operation that takes d.
func taking(d time.Duration) func(context.Context, int, uint64) (Outcome, error) {
	return func(ctx context.Context, _ int, _ uint64) (Outcome, error) {
		select {
		case <-time.After(d):
			return Applied, nil
		case <-ctx.Done():
			return Unknown, ctx.Err()
		}
	}
}

func mustRun(t *testing.T, ctx context.Context, cfg Config) *Report {
	t.Helper()
	report, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var progress []Progress
		r := mustRun(t, t.Context(), Config{
			Clients: 4, Warmup: 2 * time.Second, Duration: 10 * time.Second, Kinds: 2,
			Kind:     func(n uint64) int { return int(n % 2) },
			Do:       taking(9 * time.Millisecond),
			Progress: func(p Progress) { progress = append(progress, p) },
		})
		for kind, tally := range r.Kinds {
			// One operation of each client spans the end of the warm-up.
			if tally.Applied < 2220 || tally.Applied > 2224 {
				t.Errorf("%d of kind %d were applied, want 2222", tally.Applied, kind)
			}
			got := tally.Latency.Quantile(0.5)
			if got < 9*time.Millisecond || got > 9200*time.Microsecond {
				t.Errorf("p50 is %v, want 9ms", got)
			}
		}
		if r.Elapsed < 10*time.Second || r.Elapsed > 10*time.Second+9*time.Millisecond {
			t.Errorf("it took %v, want 10s", r.Elapsed)
		}
		if len(progress) < 10 || !progress[0].Warming || progress[4].Warming {
			t.Fatalf("progress is %+v", progress)
		}
		if p := progress[4]; p.PerSecond < 440 || p.PerSecond > 448 ||
			p.P99 < 9*time.Millisecond || p.Elapsed != 3*time.Second {
			t.Errorf("progress after 5 s is %+v, want 444 per second, p99 9 ms, after 3 s", p)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, t.Context(), Config{
			Clients: 3, Rate: 100, Warmup: time.Second, Duration: 10 * time.Second, Kinds: 1,
			Do: taking(time.Millisecond),
		})
		tally := r.Kinds[0]
		if tally.Applied != 1000 || tally.Late != 0 {
			t.Errorf("%d were applied and %d late, want 1000 and none", tally.Applied, tally.Late)
		}
		if got := tally.Latency.Max(); got != time.Millisecond {
			t.Errorf("the slowest took %v, want 1ms", got)
		}
	})
}

// stalling returns an operation that takes 1 ms, but for a stall of 2 s.
func stalling() func(context.Context, int, uint64) (Outcome, error) {
	begin := time.Now()
	stalls, ends := begin.Add(4*time.Second), begin.Add(6*time.Second)
	return func(ctx context.Context, client int, n uint64) (Outcome, error) {
		took := time.Millisecond
		if now := time.Now(); !now.Before(stalls) && now.Before(ends) {
			took = ends.Sub(now)
		}
		return taking(took)(ctx, client, n)
	}
}

// TestStall: with a rate, all operations that would have been asked for during a stall
// have the latency that they would have had. Without one only those count that were asked.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Clients: 2, Duration: 10 * time.Second, Kinds: 1}
		cfg.Do = stalling()
		closed := mustRun(t, t.Context(), cfg)
		if got := closed.Kinds[0].Latency.Quantile(0.999); got > 2*time.Millisecond {
			t.Errorf("in a closed loop p99.9 is %v, want 1ms", got)
		}
		cfg.Do, cfg.Rate = stalling(), 500
		open := mustRun(t, t.Context(), cfg)
		l := &open.Kinds[0].Latency
		// A fifth of all was due in the stall, and half of that waited for over a second.
		if got := l.Quantile(0.9); got < 900*time.Millisecond || got > 1500*time.Millisecond {
			t.Errorf("with a rate p90 is %v, want about 1s", got)
		}
		if got := l.Max(); got < 1990*time.Millisecond || got > 2010*time.Millisecond {
			t.Errorf("with a rate the slowest took %v, want 2s", got)
		}
		if open.Kinds[0].Applied != 5000 {
			t.Errorf("%d were applied, want 5000", open.Kinds[0].Applied)
		}
	})
}

// TestLate: what no client has come to counts, with the time that it has waited.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, t.Context(), Config{
			Clients: 2, Rate: 100, Warmup: time.Second, Duration: 9 * time.Second, Kinds: 1,
			Do: taking(20 * time.Second),
		})
		tally := r.Kinds[0]
		if tally.Applied != 0 || tally.Late != 900 {
			t.Errorf("%d were applied and %d late, want none and 900", tally.Applied, tally.Late)
		}
		got := tally.Latency.Quantile(0.5)
		if got < 4450*time.Millisecond || got > 4600*time.Millisecond {
			t.Errorf("p50 is %v, want half of the time that there was, 4.5s", got)
		}
	})
}

// TestInterrupted: what is under way may end, for a while.
func TestInterrupted(t *testing.T) {
	for _, tt := range []struct {
		name           string
		takes          time.Duration
		rate           float64
		after          time.Duration
		wantApplied    uint64
		wantUnknown    uint64
		wantLate       uint64
		wantReturnedAt time.Duration
	}{
		{
			name: "in the measurement", takes: time.Second, after: 4500 * time.Millisecond,
			wantApplied: 6, wantReturnedAt: 5 * time.Second,
		},
		{
			name: "while it hangs", takes: time.Hour, after: 4500 * time.Millisecond,
			wantReturnedAt: 5500 * time.Millisecond,
		},
		{
			name: "in the warm-up", takes: time.Second, after: 1500 * time.Millisecond,
			wantReturnedAt: 2 * time.Second,
		},
		{
			name: "with a rate", takes: time.Hour, rate: 1, after: 4500 * time.Millisecond,
			wantLate: 3, wantReturnedAt: 5500 * time.Millisecond,
		},
		{
			name: "after the end", takes: 11 * time.Second, after: 12500 * time.Millisecond,
			wantUnknown: 2, wantReturnedAt: 13500 * time.Millisecond,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.after)
				defer cancel()
				begin := time.Now()
				r := mustRun(t, ctx, Config{
					Clients: 2, Rate: tt.rate, Warmup: 2 * time.Second, Duration: 10 * time.Second,
					Kinds: 1, Do: taking(tt.takes), Grace: time.Second,
				})
				if !r.Interrupted {
					t.Errorf("the report does not say that it was interrupted")
				}
				tally := &r.Kinds[0]
				if tally.Applied != tt.wantApplied || tally.Unknown != tt.wantUnknown ||
					tally.Late != tt.wantLate {
					t.Errorf("%d were applied, %d unknown and %d late, want %d, %d and %d",
						tally.Applied, tally.Unknown, tally.Late,
						tt.wantApplied, tt.wantUnknown, tt.wantLate)
				}
				if got := time.Since(begin); got != tt.wantReturnedAt {
					t.Errorf("Run returned after %v, want %v", got, tt.wantReturnedAt)
				}
			})
		})
	}
}

// TestRefused: a client that is refused does not ask as fast as it can, and all ways in
// which an operation can fail are told apart.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := errors.New("odd")
		var calls atomic.Int64
		r := mustRun(t, t.Context(), Config{
			Clients: 1, Duration: 10 * time.Second, Kinds: 1, Pause: 100 * time.Millisecond,
			Do: func(context.Context, int, uint64) (Outcome, error) {
				time.Sleep(100 * time.Millisecond)
				if calls.Add(1)%2 == 0 {
					return Unknown, odd
				}
				return NotApplied, odd
			},
		})
		tally := r.Kinds[0]
		if tally.NotApplied != 34 || tally.Unknown != 33 {
			t.Errorf("%d were refused and %d unknown, want 34 and 33",
				tally.NotApplied, tally.Unknown)
		}
		if tally.Latency.Count() != tally.Unknown {
			t.Errorf("%d have a latency, want those with an unknown outcome", tally.Latency.Count())
		}
		if !errors.Is(r.Err, odd) {
			t.Errorf("the report has the error %v, want %v", r.Err, odd)
		}
	})
}

func TestConfig(t *testing.T) {
	_, err := Run(t.Context(), Config{Rate: -1, Warmup: -1})
	for _, want := range []string{"Clients", "Rate", "Duration", "Warmup", "Kinds", "Do"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error says nothing of %s: %v", want, err)
		}
	}
}
