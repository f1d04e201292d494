package sim

import (
	"time"

	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// watchSleepers looks, until the run ends, for replicas that sleep on though their leader's
// node is down.
//
// Rule 22 (sleep).
func (w *World) watchSleepers() {
	noisy := time.Duration(0)
	w.every(2*w.setup.tick, func() bool {
		if w.isNoisy() {
			noisy = w.turns.Time()
		}
		for _, s := range w.check.Sleepers() {
			w.checkSleeper(s, noisy)
		}
		w.judge()
		return w.failure != nil
	})
}

func (w *World) checkSleeper(s check.Sleeper, noisy time.Duration) {
	h, leader := w.host(s.Node), w.host(s.Leader)
	if h.state != running || leader.state != down {
		return
	}
	since := max(leader.ended, h.froze, h.up, noisy)
	if slept := w.turns.Time() - since; slept > w.longestSleep() {
		w.check.Overslept(s, slept)
	}
}

// longestSleep is how long a node may take to find out that another is down: one and a half
// election timeouts without a beat, by a slow clock, and what is between two looks.
func (w *World) longestSleep() time.Duration {
	s := &w.setup
	ticks := 3*s.election/2 + s.heartbeat + 4
	return time.Duration(ticks)*s.tick*5/4 + 4*s.latency
}

// isNoisy reports whether a fault goes on that may keep beats back which then come late.
func (w *World) isNoisy() bool {
	for _, f := range w.active {
		switch f.Kind {
		case Cut, Split, Isolate, LagBehind, Flaky, SlowNet:
			return true
		default:
		}
	}
	return false
}
