package trial

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// unit is the resolution of latencies, longest what is told apart, and digits how
	// many of them count.
	unit    = 100 * time.Nanosecond
	longest = 5 * time.Minute
	digits  = 3
	// stripes keeps thousands of clients from waiting for each other; a histogram for
	// each would be a good part of the memory that is measured.
	stripes = 16
)

// latencies collects the latencies of all clients. It is safe for concurrent use.
type latencies struct{ stripe [stripes]stripe }

type stripe struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
	_    [48]byte // the next one is in another cache line
}

func newLatencies() *latencies {
	l := &latencies{}
	for i := range l.stripe {
		l.stripe[i].hist = hdrhistogram.New(1, int64(longest/unit), digits)
	}
	return l
}

// add counts an operation of a client.
func (l *latencies) add(client int, took time.Duration) {
	s := &l.stripe[client%stripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	// It fails only for what is out of range.
	_ = s.hist.RecordValue(int64(min(max(took, unit), longest) / unit))
}

// sum returns how many there are, and what they come to.
func (l *latencies) sum() (n uint64, sum Latency) {
	all := hdrhistogram.New(1, int64(longest/unit), digits)
	for i := range l.stripe {
		s := &l.stripe[i]
		s.mu.Lock()
		all.Merge(s.hist)
		s.mu.Unlock()
	}
	micros := func(units int64) float64 {
		return float64(units) * float64(unit) / float64(time.Microsecond)
	}
	return uint64(all.TotalCount()), Latency{
		Mean: all.Mean() * micros(1),
		P50:  micros(all.ValueAtQuantile(50)),
		P99:  micros(all.ValueAtQuantile(99)),
		P999: micros(all.ValueAtQuantile(99.9)),
		Max:  micros(all.Max()),
	}
}
