package node

import (
	"fmt"
	"sync"
	"time"
)

// maxEvents is how many events of a replica are kept, and maxEventText how long each is.
const (
	maxEvents    = 32
	maxEventText = 400
)

// events are the last things that happened to a replica. What happens often is not among
// them. It may be noted and read from any goroutine; the zero value is ready.
type events struct {
	mu      sync.Mutex
	ring    []event   // at most maxEvents; most replicas have few
	next    int       // the oldest, once the ring is full
	stopped time.Time // when the last fault was noted
}

type event struct {
	at   int64 // in ns since 1970
	text string
}

// note adds an event.
func (e *events) note(at time.Time, text string) {
	if len(text) > maxEventText {
		text = text[:maxEventText] + "..."
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	ev := event{at: at.UnixNano(), text: text}
	if len(e.ring) < maxEvents {
		e.ring = append(e.ring, ev)
		return
	}
	e.ring[e.next] = ev
	e.next = (e.next + 1) % maxEvents
}

// fault adds a fault, which is when a quarantine begins.
func (e *events) fault(at time.Time, err error) {
	e.note(at, err.Error())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = at
}

// told returns when the last fault was, and the events, the oldest first.
func (e *events) told() (stopped time.Time, lines []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.ring {
		ev := &e.ring[(e.next+i)%len(e.ring)]
		at := time.Unix(0, ev.at).UTC()
		lines = append(lines, at.Format(time.RFC3339Nano)+" "+ev.text)
	}
	return e.stopped, lines
}

// note adds an event to those of the replica.
func (r *replica) note(format string, args ...any) {
	r.events.note(r.worker.node.world.now(), fmt.Sprintf(format, args...))
}
