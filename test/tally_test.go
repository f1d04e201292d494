//go:build unix

package test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A tally counts how requests ended, and measures for how long nothing succeeded.
type tally struct {
	begun time.Time

	mu        sync.Mutex
	counts    map[result]int
	malformed []string
	last      time.Time // of a success
	gap       time.Duration
	groups    map[raftyard.GroupID]*groupTally
}

// result is one way in which a request can end.
type result struct {
	outcome cluster.Outcome
	why     string
}

// groupTally is what a tally knows of one group.
type groupTally struct {
	group raftyard.GroupID
	last  time.Time
	gap   time.Duration
	until time.Time // the end of the gap
	lap   time.Duration
}

func newTally() *tally {
	now := time.Now()
	return &tally{
		begun: now, last: now,
		counts: make(map[result]int), groups: make(map[raftyard.GroupID]*groupTally),
	}
}

// note counts an answer to a request that was for a group.
func (y *tally) note(g raftyard.GroupID, a cluster.Answer) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[result{a.Outcome, a.Why}]++
	if a.Malformed && len(y.malformed) < 10 {
		y.malformed = append(y.malformed, a.Error().Error())
	}
	if a.Outcome != cluster.Applied {
		return
	}
	now := time.Now()
	y.gap, y.last = max(y.gap, now.Sub(y.last)), now
	gt := y.groups[g]
	if gt == nil {
		gt = &groupTally{group: g, last: now}
		y.groups[g] = gt
	}
	gap := now.Sub(gt.last)
	if gap > gt.gap {
		gt.gap, gt.until = gap, now
	}
	gt.lap, gt.last = max(gt.lap, gap), now
}

// lap returns the longest time without a success for a group that has ended since the
// last lap of it.
func (y *tally) lap(g raftyard.GroupID) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	gt := y.groups[g]
	if gt == nil {
		return 0
	}
	lap := gt.lap
	gt.lap = 0
	return lap
}

// applied returns how many requests have succeeded.
func (y *tally) applied() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	sum := 0
	for r, n := range y.counts {
		if r.outcome == cluster.Applied {
			sum += n
		}
	}
	return sum
}

// failed returns how many requests have failed, other than by telling how the key is.
func (y *tally) failed() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	sum := 0
	for r, n := range y.counts {
		told := r.why == client.CodeKeyNotFound || r.why == client.CodePrecondition
		if r.outcome != cluster.Applied && !told {
			sum += n
		}
	}
	return sum
}

// only fails the test if a request has been refused in another way than by one of the
// words.
func (y *tally) only(t *testing.T, words ...string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for r, n := range y.counts {
		if r.outcome != cluster.Applied && !slices.Contains(words, r.why) {
			t.Errorf("%d requests ended with %v %s", n, r.outcome, r.why)
		}
	}
}

// quiet returns for how long nothing has succeeded.
func (y *tally) quiet() time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	return time.Since(y.last)
}

// stalled says for how long nothing has succeeded.
func (y *tally) stalled() error {
	return fmt.Errorf("no request has succeeded for %v", y.quiet().Round(time.Millisecond))
}

// gaps returns the longest time without a success: of any request, and of those
// for one group, the worst of all groups.
func (y *tally) gaps() (anywhere time.Duration, worst groupTally) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, gt := range y.groups {
		if gt.gap > worst.gap {
			worst = *gt
		}
	}
	return y.gap, worst
}

// check fails the test if a request has failed otherwise than nodes may fail one.
func (y *tally) check(t *testing.T) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, text := range y.malformed {
		t.Errorf("a request failed without saying how: %s", text)
	}
}

func (y *tally) String() string {
	took := time.Since(y.begun)
	anywhere, worst := y.gaps()
	y.mu.Lock()
	defer y.mu.Unlock()
	results := slices.SortedFunc(maps.Keys(y.counts), func(a, b result) int {
		return cmp.Or(cmp.Compare(a.outcome, b.outcome), strings.Compare(a.why, b.why))
	})
	total := 0
	var parts []string
	for _, r := range results {
		total += y.counts[r]
		name := r.outcome.String()
		if r.why != "" {
			name += "/" + r.why
		}
		parts = append(parts, fmt.Sprintf("%s %d", name, y.counts[r]))
	}
	return fmt.Sprintf("%d requests in %.1fs (%.0f/s): %s; longest time without a success: "+
		"%.2fs anywhere, %.2fs in one group", total, took.Seconds(),
		float64(total)/took.Seconds(), strings.Join(parts, ", "),
		anywhere.Seconds(), worst.gap.Seconds())
}
