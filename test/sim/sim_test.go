package sim

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard/test/sim/internal/simnet"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "the seed that TestSeed runs")
	fromFlag     = flag.Uint64("from", 1, "the first seed of TestSeeds")
	seedsFlag    = flag.Int("seeds", 100, "how many seeds TestSeeds runs")
	opsFlag      = flag.Int("ops", 0, "what each client of TestSeed asks; 0: the seed decides")
	clientsFlag  = flag.Int("clients", 0, "the clients of TestSeed; 0: the seed decides")
	shrinkFlag   = flag.Int("shrink", shrinkBudget, "how many runs it may take to make a failure smaller")
	scheduleFlag = flag.String("schedule", "", "a file with the schedule of TestSeed")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // runs are short, and make much garbage
	goleak.VerifyTestMain(m)
}

// TestSeed runs one seed and shows what happens.
func TestSeed(t *testing.T) {
	cfg := Config{Seed: *seedFlag, Ops: *opsFlag, Clients: *clientsFlag}
	if testing.Verbose() {
		cfg.Live = os.Stderr
	}
	if *scheduleFlag != "" {
		text, err := os.ReadFile(*scheduleFlag)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Schedule, err = ParseSchedule(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v %d turns, %v, hash %x\n%s", r.Counts, r.Turns, r.Time, r.Hash, r.Schedule)
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
}

// TestSeeds runs many seeds, each under the faults that it makes. Of each kind of
// failure it shows the first one, made as small as possible, and lists the others.
func TestSeeds(t *testing.T) {
	first := make(map[string]*Result)
	also := make(map[string][]uint64)
	var sum Counts
	var net simnet.Counts
	var turns uint64
	var virtual time.Duration
	for i := range *seedsFlag {
		cfg := Config{Seed: *fromFlag + uint64(i)}
		r, err := Run(cfg)
		if err == nil {
			sum.add(r.Counts)
			net.Add(r.Network)
			turns += r.Turns
			virtual += r.Time
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case r.Failure == nil:
		case first[r.Failure.Rule] == nil:
			_, first[r.Failure.Rule] = Shrink(cfg, r, *shrinkFlag)
		default:
			also[r.Failure.Rule] = append(also[r.Failure.Rule], r.Seed)
		}
	}
	t.Logf("%d seeds, %v of virtual time, %d turns\n%+v\n%+v",
		*seedsFlag, virtual.Round(time.Second), turns, sum, net)
	for rule, r := range first {
		t.Errorf("%s\nthe same rule is broken by seeds %v", r.Report(), also[rule])
	}
}

// TestDeterminism runs seeds twice and compares everything that has happened.
func TestDeterminism(t *testing.T) {
	for seed := range uint64(20) {
		a, err := Run(Config{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Run(Config{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if a.Hash != b.Hash || a.Turns != b.Turns || a.Time != b.Time {
			t.Errorf("seed %d: hash %x after %d turns at %v, then %x after %d at %v",
				seed, a.Hash, a.Turns, a.Time, b.Hash, b.Turns, b.Time)
		}
	}
}
