package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestBuckets: they are without gaps, each ends where it says, and none is wider than the
// resolution allows.
func TestBuckets(t *testing.T) {
	last := bucketOf(math.MaxInt64)
	if want := len(Histogram{}.buckets) - 1; last != want {
		t.Fatalf("the longest duration is in bucket %d, want the last one, %d", last, want)
	}
	for b := range last {
		end := upper(b)
		if bucketOf(end) != b || bucketOf(end+1) != b+1 {
			t.Fatalf("bucket %d ends at %d, which is in bucket %d and the next in %d",
				b, end, bucketOf(end), bucketOf(end+1))
		}
		if b > 0 && float64(end-upper(b-1)) > max(1, float64(end)/subs*1.001) {
			t.Fatalf("bucket %d is from %d to %d", b, upper(b-1), end)
		}
	}
}

func TestQuantile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var h, even, odd Histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(math.Exp(rnd.Float64() * 30)) // from 1 ns to 3 hours
		all = append(all, d)
		h.Add(d)
		if i%2 == 0 {
			even.Add(d)
		} else {
			odd.Add(d)
		}
	}
	slices.Sort(all)
	even.Merge(&odd)
	if even != h {
		t.Errorf("two halves that are merged are not the whole")
	}
	for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.95} {
		want := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
		got := h.Quantile(q)
		if got < want || float64(got) > float64(want)*(1+1.0/subs)+1 {
			t.Errorf("Quantile(%v) = %v, want %v or at most 1/%d more", q, got, want, subs)
		}
	}
	if got, want := h.Quantile(1), all[len(all)-1]; got != want || h.Max() != want {
		t.Errorf("Quantile(1) = %v, Max() = %v, want %v", got, h.Max(), want)
	}
	if h.Count() != uint64(len(all)) {
		t.Errorf("Count() = %d, want %d", h.Count(), len(all))
	}
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Max() != 0 {
		t.Errorf("an empty histogram has %v, %v, %v", h.Quantile(0.5), h.Mean(), h.Max())
	}
	h.Add(-time.Second)
	h.Add(2 * time.Second)
	if h.Quantile(0.5) != 0 || h.Mean() != time.Second {
		t.Errorf("a negative duration counts as %v of %v, want 0 of 1s", h.Quantile(0.5), h.Mean())
	}
}
