package sim

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard/test/sim/internal/simnet"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "the seed that TestSeed runs")
	lifeFlag     = flag.Bool("lifecycle", false, "TestSeed runs a seed of TestLifeCycle")
	fromFlag     = flag.Uint64("from", 1, "the first seed of TestSeeds and TestLifeCycle")
	seedsFlag    = flag.Int("seeds", 0, "how many seeds these run; default 100 or 500")
	jobsFlag     = flag.Int("jobs", 1, "in how many processes these run them")
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
	cfg := Config{
		Seed: *seedFlag, LifeCycle: *lifeFlag, Ops: *opsFlag, Clients: *clientsFlag,
	}
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
		r.draw(t)
		t.Fatal(r.Failure)
	}
}

// TestSeeds runs many seeds, each under the faults that it makes. Of each kind of
// failure it shows the first one, made as small as possible, and lists the others.
// With -jobs it does so in several processes.
func TestSeeds(t *testing.T) { runSeeds(t, Config{}) }

// TestLifeCycle is TestSeeds with schedules of groups, members and replicas that come
// and go.
func TestLifeCycle(t *testing.T) { runSeeds(t, Config{LifeCycle: true}) }

func runSeeds(t *testing.T, cfg Config) {
	t.Helper()
	if *jobsFlag > 1 {
		runJobs(t)
		return
	}
	first := make(map[string]*Result)
	also := make(map[string][]uint64)
	var sum totals
	for i := range seedCount() {
		cfg.Seed = *fromFlag + uint64(i)
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
	t.Logf("%+v", sum)
	for _, what := range sum.missing(cfg.LifeCycle) {
		t.Errorf("in %d seeds there was nothing of %s: they prove less than they seem to",
			sum.Seeds, what)
	}
	for rule, r := range first {
		r.draw(t)
		t.Errorf("%s\nthe same rule is broken by seeds %v", r.Report(), also[rule])
	}
}

// seedCount is how many seeds TestSeeds and TestLifeCycle run.
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
	Idle    int // seeds in which nothing was acknowledged
	Counts
	Network simnet.Counts
}

func (t *totals) add(r *Result) {
	t.Seeds++
	t.Turns += r.Turns
	t.Virtual += r.Time
	if r.Counts.Acked == 0 {
		t.Idle++
	}
	t.Counts.add(r.Counts)
	t.Network.Add(r.Network)
}

// enough is how many seeds must have something of everything, and a few of most.
const (
	few    = 100
	enough = 400
)

// rare is what few seeds may have nothing of, and lucky what many may not.
func rare() []string {
	return []string{
		"Ambushes", "Amid", "Detached", "Excused", "Failed", "Forced", "Leaves", "Recreate",
		"RequestsLate", "RequestsLost", "Returned", "Reverts", "Rots", "Wipes",
	}
}

func lucky() []string { return []string{"Excused"} }

// alive is what only seeds of TestLifeCycle have.
func alive() []string {
	return []string{
		"Amid", "Attached", "Detached", "Forced", "Forgotten", "Joins", "Leaves", "Moves",
	}
}

// missing names what did not happen, or was not checked, in any of the seeds, which are
// of TestSeeds or of TestLifeCycle.
func (t *totals) missing(life bool) (names []string) {
	if t.Seeds < few {
		return nil
	}
	for _, name := range zeros(reflect.ValueOf(*t)) {
		switch {
		case t.Seeds < enough && slices.Contains(rare(), name):
		case slices.Contains(lucky(), name), !life && slices.Contains(alive(), name):
		default:
			names = append(names, name)
		}
	}
	if 20*t.Idle > t.Seeds {
		names = append(names, fmt.Sprintf("an acknowledged request in %d of them", t.Idle))
	}
	return names
}

// zeros names the counts that are zero.
func zeros(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Type.Kind() == reflect.Struct:
			names = append(names, zeros(v.Field(i))...)
		case v.Field(i).IsZero() && f.Name != "Idle":
			names = append(names, f.Name)
		}
	}
	return names
}

// TestMissing makes sure that the guard would notice.
func TestMissing(t *testing.T) {
	all := totals{Seeds: enough}
	for _, life := range []bool{false, true} {
		got := all.missing(life)
		if !slices.Contains(got, "Acks") || slices.Contains(got, "Joins") != life {
			t.Errorf("of runs in which nothing happens is missing: %v", got)
		}
	}
	all.Seeds = few
	if got := all.missing(false); !slices.Contains(got, "Acks") || slices.Contains(got, "Wipes") {
		t.Errorf("of few runs in which nothing happens is missing: %v", got)
	}
}

// runJobs runs the seeds in as many processes, each with one thread.
func runJobs(t *testing.T) {
	t.Helper()
	each := (seedCount() + *jobsFlag - 1) / *jobsFlag
	var wg sync.WaitGroup
	defer wg.Wait()
	for job := range *jobsFlag {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$",
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
		cfg := Config{Seed: seed, LifeCycle: seed%2 != 0}
		a, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if a.Hash != b.Hash || a.Turns != b.Turns || a.Time != b.Time {
			t.Errorf("seed %d: hash %x after %d turns at %v, then %x after %d at %v",
				seed, a.Hash, a.Turns, a.Time, b.Hash, b.Turns, b.Time)
		}
	}
}
