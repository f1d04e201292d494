package sim

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestScheduleIsText(t *testing.T) {
	kinds := make(map[FaultKind]bool)
	for seed := range uint64(300) {
		cfg := Config{Seed: seed, LifeCycle: seed%2 != 0}
		s := newSetup(&cfg, newDice(seed, streamSetup))
		want := scheduleOf(&s, &cfg)
		got, err := ParseSchedule("# a comment\n\n" + want.String())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: read\n%s\nwhich was written as\n%s", seed, got, want)
		}
		for _, f := range want {
			kinds[f.Kind] = true
		}
	}
	for kind := range faultActions {
		if !kinds[kind] {
			t.Errorf("no seed has made a %s", kind)
		}
	}
}

func TestBadSchedules(t *testing.T) {
	for _, text := range []string{
		"1s", "soon crash", "1s explode", "1s crash node=x", "1s crash nodes=1", "1s crash for=x",
	} {
		if _, err := ParseSchedule(text); !errors.Is(err, ErrSchedule) {
			t.Errorf("ParseSchedule(%q) error is %v", text, err)
		}
	}
}

func TestOneSimulationAtATime(t *testing.T) {
	s := Start(t, Config{Seed: 1})
	if _, err := Run(Config{Seed: 2}); !errors.Is(err, ErrBusy) {
		t.Errorf("a second simulation: %v, want %v", err, ErrBusy)
	}
	s.Run(time.Second)
}

// TestShrink breaks a rule whenever a certain fault comes, and looks whether nothing
// but that fault is left.
func TestShrink(t *testing.T) {
	cfg := Config{Seed: 7}
	cfg.Workload = func(c *Client) {
		for c.Running() {
			c.Sleep(50 * time.Millisecond)
			if c.w.host(2).starts > 1 {
				c.w.fail("node 2 has started again", errSync)
			}
		}
	}
	cfg.Schedule = Schedule{
		{At: 100 * time.Millisecond, Kind: Pause, Node: 1, For: time.Second},
		{At: 200 * time.Millisecond, Kind: Isolate, Node: 3, For: time.Second},
		{At: 500 * time.Millisecond, Kind: Kill, Node: 1, For: time.Second},
		{At: 700 * time.Millisecond, Kind: Kill, Node: 2, For: time.Second},
		{At: 900 * time.Millisecond, Kind: Flaky, N: 10, For: time.Second},
	}
	cfg.Nodes = 3
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure == nil {
		t.Fatal("the rule was not broken")
	}
	small, again := Shrink(cfg, r, 100)
	if len(again.Schedule) != 1 || again.Schedule[0].Kind != Kill || again.Schedule[0].Node != 2 {
		t.Errorf("what is left:\n%s", again.Schedule)
	}
	if small.Clients != 1 {
		t.Errorf("%d clients are left, want one", small.Clients)
	}
}
