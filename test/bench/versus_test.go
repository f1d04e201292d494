package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A side is one of two things that are measured in turns.
type side struct {
	// turn does a part of the work, and returns how many operations that were.
	turn func() (ops int, err error)

	ops   int
	spent time.Duration
}

func (s *side) run(b *testing.B) {
	b.Helper()
	begin := time.Now()
	ops, err := s.turn()
	s.spent += time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	s.ops += ops
}

func (s *side) rate() float64 { return float64(s.ops) / s.spent.Seconds() }

// enough is how long each side must have run for its rate to mean something.
const enough = 500 * time.Millisecond

// versus measures ours and a baseline, in turns, and reports how many of a unit each does
// in a second, and what ours is of the baseline's. Who begins changes, so that neither always
// has what the other has left: a full cache, a disk that still writes.
func versus(b *testing.B, unit string, ours, baseline *side) {
	b.Helper()
	first, second := ours, baseline
	for b.Loop() {
		first.run(b)
		second.run(b)
		first, second = second, first
	}
	ratio := ours.rate() / baseline.rate()
	b.ReportMetric(0, "ns/op") // an operation is a turn of each, which tells nothing
	b.ReportMetric(ours.rate(), unit+"/s")
	b.ReportMetric(baseline.rate(), "baseline-"+unit+"/s")
	b.ReportMetric(ratio, "ratio")
	floor, ok := Floors()[strings.TrimPrefix(b.Name(), "Benchmark")]
	if os.Getenv(CheckVariable) == "" || ours.spent < enough || baseline.spent < enough {
		return
	}
	if ok && ratio < floor {
		b.Errorf("%.2f of the baseline, which is below %.2f: a regression, or a machine that is "+
			"busy with something else", ratio, floor)
	}
}
