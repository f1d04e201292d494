package sim

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard/test/sim/internal/simnet"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "the seed that TestSeed runs")
	fromFlag     = flag.Uint64("from", 1, "the first seed of TestSeeds")
	seedsFlag    = flag.Int("seeds", 0, "how many seeds TestSeeds runs; default 100 or 500")
	jobsFlag     = flag.Int("jobs", 1, "in how many processes TestSeeds runs them")
	opsFlag      = flag.Int("ops", 0, "what each client of TestSeed asks")
	clientsFlag  = flag.Int("clients", 0, "how many clients TestSeed has")
	hashesFlag   = flag.Bool("hashes", false, "show the hash of each seed, to compare runs")
	shrinkFlag   = flag.Int("shrink", shrinkBudget, "most runs spent on a smaller failure")
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
// With -jobs it does so in several processes.
func TestSeeds(t *testing.T) {
	if *jobsFlag > 1 {
		runJobs(t)
		return
	}
	first := make(map[string]*Result)
	also := make(map[string][]uint64)
	var sum totals
	for i := range seedCount() {
		cfg := Config{Seed: *fromFlag + uint64(i)}
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		sum.add(r)
		if *hashesFlag {
			t.Logf("seed %d: hash %016x", r.Seed, r.Hash)
		}
		switch {
		case r.Failure == nil:
		case first[r.Failure.Rule] == nil:
			_, first[r.Failure.Rule] = Shrink(cfg, r, *shrinkFlag)
		default:
			also[r.Failure.Rule] = append(also[r.Failure.Rule], r.Seed)
		}
	}
	t.Log(sum)
	for rule, r := range first {
		t.Errorf("%s\nthe same rule is broken by seeds %v", r.Report(), also[rule])
	}
}

// seedCount is how many seeds TestSeeds runs.
func seedCount() int {
	switch {
	case *seedsFlag > 0:
		return *seedsFlag
	case testing.Short():
		return 100
	default:
		return 500
	}
}

// totals add up what runs contain.
type totals struct {
	Seeds   int
	Turns   uint64
	Virtual time.Duration
	Counts
	Network simnet.Counts
}

func (t *totals) add(r *Result) {
	t.Seeds++
	t.Turns += r.Turns
	t.Virtual += r.Time
	t.Counts.add(r.Counts)
	t.Network.Add(r.Network)
}

// runJobs runs the seeds in as many processes, each with one thread.
func runJobs(t *testing.T) {
	t.Helper()
	each := (seedCount() + *jobsFlag - 1) / *jobsFlag
	var wg sync.WaitGroup
	defer wg.Wait()
	for job := range *jobsFlag {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSeeds$",
				"-test.v", "-test.timeout=0",
				fmt.Sprintf("-from=%d", *fromFlag+uint64(job*each)),
				fmt.Sprintf("-seeds=%d", each), fmt.Sprintf("-shrink=%d", *shrinkFlag))
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
		})
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
