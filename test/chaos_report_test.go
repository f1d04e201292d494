//go:build unix

package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/cluster"
	"github.com/raftyard/raftyard/test/linear"
)

// clockFormat is how the log of faults tells the time, which is that of nodes' logs.
const clockFormat = "15:04:05.000"

// A faultLog is what was done, and when. It is left behind as an artifact.
type faultLog struct {
	begun time.Time

	mu     sync.Mutex
	lines  []string
	counts map[string]int
}

func newFaultLog(t *testing.T) *faultLog {
	t.Helper()
	l := &faultLog{begun: time.Now(), counts: make(map[string]int)}
	t.Cleanup(func() {
		path, err := l.write(linear.ArtifactDir(t))
		if err != nil {
			t.Errorf("keep the log of faults: %v", err)
		}
		if t.Failed() {
			t.Logf("what was done is in %s", path)
		}
	})
	return l
}

// note writes down something that was done from a time until now.
func (l *faultLog) note(name string, begun time.Time, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[name]++
	l.lines = append(l.lines, fmt.Sprintf("%s %8.3f … %8.3f %s: %s",
		begun.Format(clockFormat), begun.Sub(l.begun).Seconds(),
		time.Since(l.begun).Seconds(), name, what))
}

func (l *faultLog) write(dir string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := filepath.Join(dir, "faults.log")
	text := strings.Join(l.lines, "\n") + "\n"
	return path, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, []byte(text), 0o600))
}

// rows returns how often each thing was done whose name has a colon, as that of
// what operators do, or has none.
func (l *faultLog) rows(colon bool) []row {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		if strings.Contains(name, ":") == colon {
			rows = append(rows, row{name, fmt.Sprint(l.counts[name])})
		}
	}
	return rows
}

// lacks returns which of some faults never happened.
func (l *faultLog) lacks(faults []fault) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range faults {
		if l.counts[faults[i].name] == 0 {
			names = append(names, faults[i].name)
		}
	}
	return names
}

// total returns how many faults there were.
func (l *faultLog) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for name, n := range l.counts {
		if !strings.Contains(name, ":") {
			sum += n
		}
	}
	return sum
}

// A meter adds up counters of nodes, each of which begins anew when its node does.
// What a node counted in the moment before it was killed is missing.
type meter struct {
	mu   sync.Mutex
	last []map[string]float64 // by node
	sums map[string]float64
}

// metered is what a meter adds up, by what it is called in the table.
func metered() map[string][]string {
	const snapshots = "raftyard_snapshots_total"
	return map[string][]string{
		"changes of leader seen by nodes": {"raftyard_leader_changes_total"},
		"snapshots taken":                 {snapshots, `what="taken"`},
		"snapshots sent":                  {snapshots, `what="sent"`},
		"snapshots failed":                {snapshots, `what="failed"`},
		"snapshots received":              {snapshots, `what="received"`},
		"snapshots installed":             {snapshots, `what="installed"`},
	}
}

func newMeter(nodes []*cluster.Node) *meter {
	return &meter{
		last: make([]map[string]float64, len(nodes)+1), sums: make(map[string]float64),
	}
}

// watch looks at a node until stop, and once more then.
func (m *meter) watch(ctx context.Context, n *cluster.Node, stop <-chan struct{}) {
	const every = 250 * time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		m.look(ctx, n)
		select {
		case <-ticker.C:
		case <-stop:
			m.look(ctx, n)
			return
		}
	}
}

// look adds what has been counted since the last look. A node that does not answer
// is looked at later.
func (m *meter) look(ctx context.Context, n *cluster.Node) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	got, err := n.Metrics(ctx)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[string]float64)
	for name, series := range metered() {
		value, _ := got.Sum(series[0], series[1:]...)
		now[name] = value
		before := m.last[n.ID()][name]
		if value < before {
			before = 0 // it has been started again
		}
		m.sums[name] += value - before
	}
	m.last[n.ID()] = now
}

func (m *meter) rows() []row {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(m.sums)) {
		rows = append(rows, row{name, fmt.Sprintf("%.0f", m.sums[name])})
	}
	return rows
}

// sum returns what has been counted of something.
func (m *meter) sum(name string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sums[name]
}

// demand fails if there was nothing of some kind: what has not happened proves nothing. How
// long it takes until each kind of fault has come is a matter of luck.
func (x *chaos) demand(span time.Duration) {
	x.t.Helper()
	for _, name := range []string{"snapshots taken", "snapshots installed"} {
		if span >= time.Minute && x.meter.sum(name) == 0 {
			x.t.Errorf("in %v there were no %s", span, name)
		}
	}
	if lacks := x.faults.lacks(slices.Concat(processFaults(), networkFaults())); len(lacks) > 0 &&
		span >= enoughChaos {
		x.t.Errorf("in %v none of these came: %q", span, lacks)
	}
}

// enoughChaos is after what time each kind of fault has come, but for one run in thousands.
const enoughChaos = 20 * time.Minute

// A row is one line of a table.
type row struct{ name, value string }

// report prints what there was.
func (x *chaos) report(before []uint64, more ...row) {
	x.t.Helper()
	var terms uint64
	for i, term := range x.terms() {
		terms += term - before[i]
	}
	anywhere, worst := x.rec.tally.gaps()
	rows := []row{
		{"seed", fmt.Sprint(x.seed)},
		{"nodes, groups, keys", fmt.Sprintf("%d, %d, %d",
			chaosNodes, chaosGroups, x.rec.keys())},
		{"operations", fmt.Sprint(x.rec.history.Len())},
	}
	rows = append(rows, x.rec.table()...)
	rows = append(rows, row{"faults", fmt.Sprint(x.faults.total())})
	rows = append(rows, x.faults.rows(false)...)
	rows = append(rows, x.faults.rows(true)...)
	rows = append(rows, row{"terms that groups have gone through", fmt.Sprint(terms)})
	rows = append(rows, x.meter.rows()...)
	rows = append(rows,
		row{"longest without a success", fmt.Sprintf("%.1fs anywhere, %.1fs in group %d until %s",
			anywhere.Seconds(), worst.gap.Seconds(), worst.group, worst.until.Format(clockFormat))})
	var b strings.Builder
	for _, r := range append(rows, more...) {
		fmt.Fprintf(&b, "\n  %-36s %s", r.name, r.value)
	}
	x.t.Log(b.String())
	x.t.Logf("clients: %v", x.rec.tally)
	x.t.Logf("operators: %v", x.operated)
}
