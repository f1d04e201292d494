package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestEventsAreTheLastOnes(t *testing.T) {
	var e events
	at := time.Unix(1_000_000, 0)
	for i := range 3 * maxEvents / 2 {
		e.note(at, fmt.Sprintf("event %d", i))
	}
	e.fault(at.Add(time.Second), errors.New("broken "+strings.Repeat("x", 2*maxEventText)))
	stopped, lines := e.told()
	if !stopped.Equal(at.Add(time.Second)) {
		t.Errorf("the fault was at %v, want a second after %v", stopped, at)
	}
	if len(lines) != maxEvents {
		t.Fatalf("%d events are kept, want %d", len(lines), maxEvents)
	}
	oldest := fmt.Sprintf(" event %d", maxEvents/2+1)
	if !strings.HasSuffix(lines[0], oldest) {
		t.Errorf("the oldest event is %q, want%s", lines[0], oldest)
	}
	last := lines[maxEvents-1]
	if !strings.Contains(last, "broken") || len(last) > maxEventText+100 {
		t.Errorf("the newest event is %q, want the fault, cut short", last)
	}
}

func TestQuarantineTellsTheReason(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	if _, err := c.nodes[1].Propose(t.Context(), 1, []byte("panic now")); err == nil {
		t.Fatal("Propose of what breaks the state machine succeeded")
	}
	var q *Quarantine
	c.eventually("the replica is in quarantine", func() bool {
		q = c.status(1, 1).Quarantine
		return q != nil
	})
	if q.Reason != MachinePanicked || q.Index == 0 || q.Term == 0 || q.Since.IsZero() ||
		len(q.Events) == 0 || !strings.Contains(q.Events[len(q.Events)-1], "panic") {
		t.Errorf("quarantine = %+v, want a panic of the state machine, with index and events", q)
	}
	count := c.nodes[1].Metrics().Quarantined
	if count[string(MachinePanicked)] != 1 || count[string(DamagedLog)] != 0 ||
		len(count) != len(QuarantineReasons()) {
		t.Errorf("quarantined = %v, want one panicked", count)
	}
}
