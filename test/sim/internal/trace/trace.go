// Package trace writes down what happens in a simulation: the newest events for
// whoever reads about a failure, and a hash of all of them, by which two runs are
// compared.
package trace

import (
	"fmt"
	"io"
	"math/bits"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
)

// An Event is something that has happened. Fields that are zero are not shown.
type Event struct {
	At    time.Duration // since the beginning
	Node  raftyard.NodeID
	What  string
	Peer  raftyard.NodeID
	Group raftyard.GroupID
	A, B  uint64
	Text  string
}

// A Trace takes events. It is for one goroutine.
type Trace struct {
	ring  []Event
	count uint64
	hash  uint64
	live  io.Writer
	lines int
}

// New returns a trace that keeps the newest size events. With live, which may be
// nil, each event is written there, too, as it comes.
func New(size int, live io.Writer) *Trace {
	return &Trace{ring: make([]Event, 0, size), live: live, lines: size, hash: 0xcbf29ce484222325}
}

// Add adds an event.
func (t *Trace) Add(e Event) {
	t.count++
	t.mix(uint64(e.At))
	t.mix(uint64(e.Node)<<32 ^ uint64(e.Peer)<<16 ^ uint64(e.Group))
	t.mix(e.A)
	t.mix(e.B)
	t.mixText(e.What)
	t.mixText(e.Text)
	if t.live != nil {
		_, _ = fmt.Fprintln(t.live, e) // a trace that cannot be shown stops nothing
	}
	if len(t.ring) < t.lines {
		t.ring = append(t.ring, e)
		return
	}
	if t.lines > 0 {
		t.ring[(t.count-1)%uint64(t.lines)] = e
	}
}

// Mix puts a number into the hash, without an event.
func (t *Trace) Mix(v uint64) { t.mix(v) }

func (t *Trace) mix(v uint64) {
	t.hash = bits.RotateLeft64((t.hash^v)*0x9E3779B97F4A7C15, 29)
}

func (t *Trace) mixText(s string) {
	t.mix(uint64(len(s)))
	for len(s) >= 8 {
		t.mix(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
		s = s[8:]
	}
	var v uint64
	for i := range len(s) {
		v = v<<8 | uint64(s[i])
	}
	t.mix(v)
}

// Hash returns the hash of all events so far.
func (t *Trace) Hash() uint64 { return t.hash }

// Count returns how many events there were.
func (t *Trace) Count() uint64 { return t.count }

// Events returns the newest events, the oldest of them first.
func (t *Trace) Events() []Event {
	if t.lines == 0 || t.count <= uint64(t.lines) {
		return append([]Event(nil), t.ring...)
	}
	at := int(t.count % uint64(t.lines))
	return append(append([]Event(nil), t.ring[at:]...), t.ring[:at]...)
}

// String returns the newest events, one a line.
func (t *Trace) String() string {
	var b strings.Builder
	events := t.Events()
	for i := range events {
		b.WriteString(events[i].String())
		b.WriteByte('\n')
	}
	return b.String()
}

// String returns the event in one line.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12.6f ", e.At.Seconds())
	if e.Node != 0 {
		fmt.Fprintf(&b, "n%d ", e.Node)
	} else {
		b.WriteString("-- ")
	}
	b.WriteString(e.What)
	if e.Peer != 0 {
		fmt.Fprintf(&b, " n%d", e.Peer)
	}
	if e.Group != 0 {
		fmt.Fprintf(&b, " g%d", e.Group)
	}
	if e.A != 0 || e.B != 0 {
		fmt.Fprintf(&b, " %d", e.A)
	}
	if e.B != 0 {
		fmt.Fprintf(&b, " %d", e.B)
	}
	if e.Text != "" {
		b.WriteString(" ")
		b.WriteString(e.Text)
	}
	return b.String()
}
