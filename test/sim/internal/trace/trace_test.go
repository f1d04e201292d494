package trace

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestKeepsTheNewest(t *testing.T) {
	var live strings.Builder
	tr := New(3, &live)
	for i := range 5 {
		tr.Add(Event{At: time.Duration(i) * time.Second, Node: 1, What: "tick", A: uint64(i)})
	}
	var got []uint64
	for _, e := range tr.Events() {
		got = append(got, e.A)
	}
	if fmt.Sprint(got) != "[2 3 4]" || tr.Count() != 5 {
		t.Errorf("events %v of %d, want the last three of five", got, tr.Count())
	}
	if lines := strings.Count(live.String(), "\n"); lines != 5 {
		t.Errorf("%d lines were shown, want all five", lines)
	}
	if !strings.Contains(tr.String(), "4.000000 n1 tick 4") {
		t.Errorf("trace is\n%s", tr)
	}
}

func TestHashTellsTracesApart(t *testing.T) {
	base := Event{
		At: 1, Node: 1, What: "message", Peer: 2, Group: 3, A: 4, B: 5, Text: "MsgApp to all",
	}
	hashes := map[uint64]string{}
	for name, change := range map[string]func(*Event){
		"same": func(*Event) {}, "at": func(e *Event) { e.At++ },
		"node": func(e *Event) { e.Node++ },
		"what": func(e *Event) { e.What = "massage" }, "peer": func(e *Event) { e.Peer++ },
		"group": func(e *Event) { e.Group++ }, "a": func(e *Event) { e.A++ },
		"b": func(e *Event) { e.B++ }, "text": func(e *Event) { e.Text = "MsgApp to alm" },
		"longer": func(e *Event) { e.Text += "\x00" },
	} {
		e := base
		change(&e)
		tr := New(0, nil)
		tr.Add(e)
		if other, known := hashes[tr.Hash()]; known {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		hashes[tr.Hash()] = name
	}
}

func BenchmarkAdd(b *testing.B) {
	tr := New(1000, nil)
	b.ReportAllocs()
	for b.Loop() {
		tr.Add(Event{Node: 1, What: "message", Peer: 2, Group: 3, A: 4, B: 5, Text: "MsgApp"})
	}
}
