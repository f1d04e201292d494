//go:build linux

package memory

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/cluster"
)

const mib = 1 << 20

// A sample is what the nodes take at one moment, at most of all of them.
type sample struct {
	at        time.Duration
	passed    int64          // bytes that clients have been told are written
	memory    cluster.Memory // the most that one node has
	allocated int64          // of the disk, the most that one node has
}

// A process is one whose memory can be sampled.
type process interface {
	Memory() (cluster.Memory, error)
}

// A watch samples some nodes, from a goroutine, until it is ended.
type watch struct {
	nodes     []*cluster.Node
	processes []process // others

	disk    bool                         // sample that as well
	written atomic.Pointer[atomic.Int64] // see passedBy
	begun   time.Time

	stop chan struct{}
	once sync.Once
	wg   sync.WaitGroup

	mu      sync.Mutex
	samples []sample
	err     error
}

// newWatch begins to sample. The nodes must run for as long as it does.
func newWatch(t *testing.T, w *watch) *watch {
	t.Helper()
	w.begun, w.stop = time.Now(), make(chan struct{})
	w.wg.Go(w.run)
	t.Cleanup(w.end)
	return w
}

// passedBy has the samples say how much a load has written.
func (w *watch) passedBy(l *load) { w.written.Store(&l.passed) }

func (w *watch) run() {
	every := 200 * time.Millisecond
	if w.disk {
		every = time.Second
	}
	clock := time.NewTicker(every)
	defer clock.Stop()
	for {
		s, err := w.look()
		w.mu.Lock()
		if err != nil {
			w.err = err
		} else {
			w.samples = append(w.samples, s)
		}
		w.mu.Unlock()
		select {
		case <-w.stop:
			return
		case <-clock.C:
		}
	}
}

func (w *watch) look() (sample, error) {
	s := sample{at: time.Since(w.begun)}
	if passed := w.written.Load(); passed != nil {
		s.passed = passed.Load()
	}
	all := slices.Clone(w.processes)
	for _, n := range w.nodes {
		all = append(all, n)
	}
	for _, p := range all {
		m, err := p.Memory()
		if err != nil {
			return s, err
		}
		s.memory.Resident = max(s.memory.Resident, m.Resident)
		s.memory.Anonymous = max(s.memory.Anonymous, m.Anonymous)
	}
	if !w.disk {
		return s, nil
	}
	for _, n := range w.nodes {
		used, err := cluster.AllocatedBytes(n.Dir())
		if err != nil {
			return s, err
		}
		s.allocated = max(s.allocated, used)
	}
	return s, nil
}

// end ends the sampling. It may be called again.
func (w *watch) end() {
	w.once.Do(func() { close(w.stop) })
	w.wg.Wait()
}

// last returns the newest sample.
func (w *watch) last() sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.samples) == 0 {
		return sample{}
	}
	return w.samples[len(w.samples)-1]
}

// peak returns the most of everything.
func (w *watch) peak() sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	var p sample
	for _, s := range w.samples {
		p.passed = max(p.passed, s.passed)
		p.allocated = max(p.allocated, s.allocated)
		p.memory.Resident = max(p.memory.Resident, s.memory.Resident)
		p.memory.Anonymous = max(p.memory.Anonymous, s.memory.Anonymous)
	}
	return p
}

// table returns about so many samples, evenly spread, as text.
func (w *watch) table(lines int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%8s %12s %12s %12s %12s\n", "s", "written MiB", "own MiB", "RSS MiB",
		"disk MiB")
	step := max(len(w.samples)/lines, 1)
	for i := 0; i < len(w.samples); i += step {
		s := w.samples[i]
		fmt.Fprintf(&b, "%8.1f %12d %12d %12d %12d\n", s.at.Seconds(), s.passed/mib,
			s.memory.Anonymous/mib, s.memory.Resident/mib, s.allocated/mib)
	}
	return b.String()
}

// check ends the sampling, prints the table and fails the test if a node had more
// memory of its own than it may, or could not be looked at.
func (w *watch) check(t *testing.T, bound int64) {
	t.Helper()
	w.end()
	t.Log(w.table(20))
	p := w.peak()
	t.Logf("peak: %d MiB of its own (bound %d), %d MiB resident",
		p.memory.Anonymous/mib, bound/mib, p.memory.Resident/mib)
	if w.err != nil {
		t.Error(w.err)
	}
	if p.memory.Anonymous > bound {
		t.Errorf("a node had %d MiB of its own, want %d at most",
			p.memory.Anonymous/mib, bound/mib)
	}
}
