package turns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newScheduler(t testing.TB, seed uint64, p Policy) *Scheduler {
	t.Helper()
	s := New(Config{Dice: rand.New(rand.NewPCG(seed, 1)), Policy: p})
	t.Cleanup(s.Close)
	return s
}

func never() bool { return false }

// order runs some processes that take turns, and returns who had them.
func order(t *testing.T, seed uint64, p Policy) string {
	t.Helper()
	s := newScheduler(t, seed, p)
	st := s.NewStation("a", epoch, 1)
	var b strings.Builder
	left := 5
	for i := range 5 {
		st.Go(fmt.Sprint(i), func() {
			defer func() { left-- }()
			for range 10 {
				st.Until(always)
				fmt.Fprint(&b, i)
			}
		})
	}
	if !s.Until(func() bool { return left == 0 }) {
		t.Fatal(s.Err())
	}
	return b.String()
}

func TestSameSeedSameOrder(t *testing.T) {
	for p := range numPolicies {
		orders := make(map[string]bool)
		for seed := range uint64(20) {
			once := order(t, seed, p)
			if again := order(t, seed, p); again != once {
				t.Errorf("policy %d, seed %d: %s, then %s", p, seed, once, again)
			}
			orders[once] = true
		}
		if want := 15; p != Fair && len(orders) < want {
			t.Errorf("policy %d: %d orders from 20 seeds, want at least %d", p, len(orders), want)
		}
	}
}

func TestOnlyOneTakesWhatIsThere(t *testing.T) {
	s := newScheduler(t, 1, Uniform)
	st := s.NewStation("a", epoch, 1)
	tokens, taken, done := 0, 0, 0
	for range 4 {
		st.Go("taker", func() {
			defer func() { done++ }()
			for range 25 {
				st.Until(func() bool { return tokens > 0 })
				if tokens--; tokens < 0 {
					t.Error("two were told that they can have the one that is there")
				}
				taken++
			}
		})
	}
	st.Go("giver", func() {
		for range 100 {
			st.Until(func() bool { return tokens < 2 })
			tokens++
		}
	})
	if !s.Until(func() bool { return done == 4 }) || taken != 100 {
		t.Fatalf("%d taken of 100: %v", taken, s.Err())
	}
}

func TestSleepPassesVirtualTime(t *testing.T) {
	s := newScheduler(t, 1, Uniform)
	fast := s.NewStation("fast", epoch, 2)
	slow := s.NewStation("slow", epoch, 0.5)
	var woke []string
	sleeper := func(st *Station) func() {
		return func() {
			before := st.Now()
			st.Sleep(t.Context(), time.Hour)
			if d := st.Now().Sub(before); d < time.Hour || d > time.Hour+time.Minute {
				t.Errorf("%s slept for %v by its clock, want an hour", st.Name, d)
			}
			woke = append(woke, fmt.Sprint(st.Name, " ", s.Time().Round(time.Minute)))
		}
	}
	slow.Go("sleeper", sleeper(slow))
	fast.Go("sleeper", sleeper(fast))
	if !s.Until(func() bool { return len(woke) == 2 }) {
		t.Fatal(s.Err())
	}
	if want := []string{"fast 30m0s", "slow 2h0m0s"}; !slices.Equal(woke, want) {
		t.Errorf("woke %q, want %q", woke, want)
	}
}

func TestTimeout(t *testing.T) {
	s := newScheduler(t, 1, Uniform)
	st := s.NewStation("a", epoch, 1)
	type key struct{}
	parent, cancelParent := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	defer cancelParent()
	ctx, cancel := st.WithTimeout(parent, time.Minute)
	defer cancel()
	short, cancelShort := st.WithTimeout(ctx, time.Second)
	defer cancelShort()
	long, cancelLong := st.WithTimeout(ctx, time.Hour)
	defer cancelLong()
	child, cancelChild := context.WithCancel(ctx)
	defer cancelChild()

	deadline := func(c context.Context) time.Duration { d, _ := c.Deadline(); return d.Sub(epoch) }
	if deadline(ctx) != time.Minute || deadline(short) != time.Second ||
		deadline(long) != time.Minute || deadline(child) != time.Minute {
		t.Errorf("deadlines %v, %v, %v, %v", deadline(ctx), deadline(short), deadline(long),
			deadline(child))
	}
	if long.Value(key{}) != "v" || child.Value(key{}) != "v" {
		t.Error("a value of the parent is lost")
	}
	woke := false
	st.Go("waiter", func() {
		if st.Sleep(short, time.Hour) {
			t.Error("Sleep outlived its context")
		}
		woke = true
	})
	s.Until(func() bool { return woke })
	if !errors.Is(short.Err(), context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("after a second: %v, %v", short.Err(), ctx.Err())
	}
	s.Until(func() bool { return s.Time() > 2*time.Minute })
	for name, c := range map[string]context.Context{"ctx": ctx, "long": long, "child": child} {
		if !errors.Is(context.Cause(c), context.DeadlineExceeded) {
			t.Errorf("%s: cause is %v", name, context.Cause(c))
		}
		select {
		case <-c.Done():
		default:
			t.Errorf("%s is not done", name)
		}
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("error is %v", ctx.Err())
	}
	other, cancelOther := st.WithTimeout(parent, time.Minute)
	defer cancelOther()
	cancelParent()
	if !errors.Is(other.Err(), context.Canceled) {
		t.Errorf("error after the parent's cancel is %v", other.Err())
	}
}

func TestKillRunsDeferredCallsOnly(t *testing.T) {
	s := newScheduler(t, 1, Uniform)
	st := s.NewStation("victim", epoch, 1)
	other := s.NewStation("other", epoch, 1)
	var ran []string
	for _, name := range []string{"a", "b"} {
		st.Go(name, func() {
			defer func() { ran = append(ran, name+" outer") }()
			defer func() {
				st.Go("late", func() { ran = append(ran, "started by the dead") })
				st.Until(never)
				ran = append(ran, "waited while dying")
			}()
			st.Until(never)
			ran = append(ran, "went on")
		})
	}
	killed := false
	other.Go("killer", func() {
		other.Sleep(t.Context(), time.Second)
		st.Go("never begun", func() { ran = append(ran, "began") })
		st.Kill()
		killed = true
	})
	if !s.Until(func() bool { return killed }) {
		t.Fatal(s.Err())
	}
	if want := []string{"a outer", "b outer"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
}

func TestPausedStationTakesNoTurns(t *testing.T) {
	s := newScheduler(t, 1, Uniform)
	st := s.NewStation("a", epoch, 1)
	var at []time.Duration
	st.Go("ticker", func() {
		for {
			st.Sleep(t.Context(), time.Second)
			at = append(at, s.Time())
		}
	})
	s.Until(func() bool { return len(at) == 2 })
	st.Pause(time.Minute)
	s.Until(func() bool { return len(at) == 3 })
	if at[2]-at[1] < time.Minute {
		t.Errorf("ran %v after the turn before, in a pause of a minute", at[2]-at[1])
	}
	st.Pause(time.Hour)
	st.Unpause()
	s.Until(func() bool { return len(at) == 4 })
	if at[3]-at[2] > time.Minute {
		t.Errorf("ran %v after the turn before, though the pause was ended", at[3]-at[2])
	}
}

func TestStalledProcess(t *testing.T) {
	s := newScheduler(t, 1, Uniform)
	st := s.NewStation("a", epoch, 1)
	ran := false
	st.Go("a", func() { ran = true })
	st.Stall(time.Minute)
	s.Until(func() bool { return ran })
	if s.Time() < time.Minute {
		t.Errorf("ran at %v, want not before a minute", s.Time())
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name string
		run  func(st *Station)
		want string
	}{
		{"panic", func(*Station) { panic("boom") }, "boom"},
		{"deadlock", func(st *Station) { st.Until(never) }, "no timer is set"},
		{"endless", func(st *Station) {
			for {
				st.Until(always)
			}
		}, "no end of turns"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Config{Dice: rand.New(rand.NewPCG(1, 1)), MaxIdle: 1000})
			defer s.Close()
			st := s.NewStation("a", epoch, 1)
			st.Go("p", func() { tt.run(st) })
			if s.Until(never) || s.Err() == nil ||
				!strings.Contains(s.Err().Error(), tt.want) {
				t.Errorf("error is %v, want one with %q", s.Err(), tt.want)
			}
		})
	}
}

// BenchmarkTurn measures a turn among as many waiting processes as a cluster has.
func BenchmarkTurn(b *testing.B) {
	s := newScheduler(b, 1, Uniform)
	s.maxIdle = math.MaxInt
	for range 5 {
		st := s.NewStation("a", epoch, 1)
		for range 20 {
			st.Go("waiter", func() { st.Until(never) })
		}
		for range 2 {
			st.Go("runner", func() {
				for {
					st.Until(always)
				}
			})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.turn()
	}
}
