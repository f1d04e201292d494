package sim

import (
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/sim/internal/simnet"
)

// TestReadyWhereAnswersTakeLong proves that a node which starts gets ready where the answer to
// a question about the registry takes longer than an election timeout, and longer than the node
// waits before it does something else beside: as between distant places, or where thousands of
// groups have woken because the node has come.
func TestReadyWhereAnswersTakeLong(t *testing.T) {
	s := Start(t, Config{Seed: 14})       // its election timeout is 800 ms
	const oneWay = 300 * time.Millisecond // there and back twice until a question is answered
	if timeout := s.timeouts(1); timeout <= 2*oneWay || timeout > 4*oneWay {
		t.Fatalf("the election timeout is %v, which does not fit", timeout)
	}
	goes := s.w.host(s.Leader(raftyard.SystemGroup)%3 + 1)
	s.Kill(goes.id)
	for _, from := range s.w.ids() {
		for _, to := range s.w.ids() {
			if from != to {
				s.w.net.SetFaults(simnet.Route{From: from, To: to},
					func(f *simnet.Faults) { f.Delay = oneWay })
			}
		}
	}
	s.Run(s.timeouts(5))
	s.Restart(goes.id)
	if err := s.runs(10*time.Second, "the node is ready", func() bool {
		return !goes.unready()
	}); err != nil {
		t.Error(err)
	}
}
