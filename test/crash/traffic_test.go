//go:build unix

package crash

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

const (
	tamperFor = 1500 * time.Millisecond
	// convergeLimit is how long after the traffic is well again every group must
	// have acknowledged something.
	convergeLimit = 10 * time.Second
	phaseHealed   = "healed"
)

// relayed puts a relay before each node.
func (l *loop) relayed() []*relay {
	l.t.Helper()
	relays := make([]*relay, l.orders.Nodes)
	for i := range relays {
		relays[i] = newRelay(l.t, l.orders.Seed+uint64(i))
		l.orders.Peers = append(l.orders.Peers, relays[i].listener.Addr().String())
	}
	l.listens = func(text string) {
		id, addr, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(id)
		if err != nil || n < 1 || n > len(relays) {
			l.ledger.complain("the child says that node %q listens", text)
			return
		}
		relays[n-1].target.Store(&addr)
	}
	return relays
}

// TestTamperedTraffic damages, loses, doubles and swaps what nodes send each other,
// kills them, and starts them again. No replica may stop, nothing acknowledged may
// be lost, and every group works again soon after the traffic is well.
func TestTamperedTraffic(t *testing.T) {
	t.Parallel()
	l := newLoop(t, 3, 4)
	relays := l.relayed()
	tampering := func(on bool) {
		for _, r := range relays {
			r.tamper.Store(on)
		}
	}
	var heal *time.Timer
	var healed time.Time // the end of the tampering of this life
	var working map[raftyard.GroupID]bool
	l.patience = tamperFor + convergeLimit
	l.ready = func() {
		tampering(true)
		heal = time.AfterFunc(tamperFor, func() { tampering(false) })
		healed, working = time.Now().Add(tamperFor), make(map[raftyard.GroupID]bool)
	}
	l.acked = func(v *life, g raftyard.GroupID) {
		if v.hit || !v.ready || time.Now().Before(healed) {
			return
		}
		if working[g] = true; len(working) == l.orders.Groups {
			v.came(phaseHealed)
		}
	}
	for range rounds(t, 2, 6, 200) {
		ok := l.live(aim{Phase: phaseHealed, Nth: 1})
		if heal != nil {
			heal.Stop()
		}
		tampering(false)
		if !ok {
			break
		}
		if l.hits[phaseHealed] != l.lives {
			l.ledger.complain("%v after the traffic was well only %d of %d groups worked",
				convergeLimit, len(working), l.orders.Groups)
			break
		}
	}
	l.run(0)
	l.report()
	var flipped, cut, lost, doubled, swapped int64
	for _, r := range relays {
		flipped, cut = flipped+r.flipped.Load(), cut+r.cut.Load()
		lost, doubled = lost+r.lost.Load(), doubled+r.doubled.Load()
		swapped += r.swapped.Load()
	}
	t.Logf("%d bits flipped, %d frames cut off, %d lost, %d doubled, %d swapped",
		flipped, cut, lost, doubled, swapped)
	if flipped == 0 || cut == 0 || lost == 0 || doubled == 0 || swapped == 0 {
		t.Error("one of the faults did not happen")
	}
}
