package linear

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// A line is one operation of a history that a test gives to the check.
type line struct {
	op         Op
	call, back int64 // back 0: unknown
	result     Result
}

func put(value string, call, back int64) line {
	return line{op: Op{Kind: Put, Value: value}, call: call, back: back}
}

func add(value string, call, back int64) line {
	return line{op: Op{Kind: Append, Value: value}, call: call, back: back}
}

func get(value string, call, back int64) line {
	return line{
		op: Op{Kind: Get}, call: call, back: back,
		result: Result{Found: value != "", Value: value},
	}
}

func swap(old, value string, call, back int64) line {
	op := Op{Kind: Swap, Old: old, Value: value}
	return line{op: op, call: call, back: back, result: Result{OK: true}}
}

func create(value string, call, back int64) line {
	op := Op{Kind: Create, Value: value}
	return line{op: op, call: call, back: back, result: Result{OK: true}}
}

func remove(call, back int64) line {
	return line{op: Op{Kind: Delete}, call: call, back: back, result: Result{OK: true}}
}

// not turns a line into one that was told that nothing was done.
func not(l line) line {
	l.result.OK = false
	return l
}

func record(h *History, key string, lines []line) {
	for i, l := range lines {
		l.op.Key = key
		p := h.Begin(i, l.op, l.call)
		if l.back != 0 {
			p.Done(l.back, l.result)
		}
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name  string
		lines []line
		want  bool
	}{
		{"read what was written", []line{put("a", 1, 2), get("a", 3, 4)}, true},
		{"read nothing at first", []line{get("", 1, 2), put("a", 3, 4)}, true},
		{"stale read", []line{put("a", 1, 2), put("b", 3, 4), get("a", 5, 6)}, false},
		{"read beside the write", []line{put("a", 1, 2), put("b", 3, 6), get("a", 4, 5)}, true},
		{"lost write", []line{put("a", 1, 2), get("", 3, 4)}, false},
		{"lost delete", []line{put("a", 1, 2), remove(3, 4), get("a", 5, 6)}, false},
		{"back in time", []line{
			put("a", 1, 2), put("b", 3, 9), get("b", 4, 5), get("a", 6, 7),
		}, false},
		{"read what nobody wrote", []line{put("a", 1, 2), get("x", 3, 4)}, false},

		{"unknown and never seen", []line{put("a", 1, 2), remove(3, 0), get("a", 4, 5)}, true},
		{"unknown and done later", []line{
			put("a", 1, 2), remove(3, 0), get("a", 4, 5), get("", 6, 7),
		}, true},
		{"unknown and done before it was asked", []line{
			put("a", 1, 2), get("b", 3, 4), put("b", 5, 0),
		}, false},
		{"unknown and undone", []line{
			put("a", 1, 2), put("b", 3, 0), get("b", 4, 5), get("a", 6, 7),
		}, false},
		{"unknown read", []line{put("a", 1, 2), get("x", 3, 0)}, true},

		{"put done twice", []line{
			put("a", 1, 2), put("b", 3, 4), get("b", 5, 6), get("a", 7, 8),
		}, false},
		{"unknown put done twice", []line{
			put("a", 1, 0), get("a", 2, 3), put("b", 4, 5), get("a", 6, 7),
		}, false},
		{"append", []line{add("a", 1, 2), add("b", 3, 4), get("ab", 5, 6)}, true},
		{"append in another order", []line{add("a", 1, 2), add("b", 3, 4), get("ba", 5, 6)}, false},
		{"appends at the same time", []line{add("a", 1, 4), add("b", 2, 3), get("ba", 5, 6)}, true},
		{"append done twice", []line{put("a", 1, 2), add("b", 3, 4), get("abb", 5, 6)}, false},
		{"unknown append done twice", []line{
			put("a", 1, 2), add("b", 3, 0), get("abb", 4, 5),
		}, false},
		{"lost append", []line{add("a", 1, 2), add("b", 3, 4), get("a", 5, 6)}, false},

		{"swap", []line{put("a", 1, 2), swap("a", "b", 3, 4), get("b", 5, 6)}, true},
		{"swap of another value", []line{put("a", 1, 2), swap("x", "b", 3, 4)}, false},
		{"swap of nothing", []line{swap("", "b", 1, 2)}, false},
		{"swap refused, value there", []line{put("a", 1, 2), not(swap("a", "b", 3, 4))}, false},
		{"swap refused, other value", []line{put("a", 1, 2), not(swap("x", "b", 3, 4))}, true},
		{"swap refused and done", []line{
			put("a", 1, 2), not(swap("x", "b", 3, 4)), get("b", 5, 6),
		}, false},
		{"swap done and lost", []line{
			put("a", 1, 2), swap("a", "b", 3, 4), get("a", 5, 6),
		}, false},
		{"two swaps of one value", []line{
			put("a", 1, 2), swap("a", "b", 3, 6), swap("a", "c", 4, 5),
		}, false},
		{"unknown swap done twice", []line{
			put("a", 1, 2), swap("a", "b", 3, 0), get("b", 4, 5), put("a", 6, 7), get("b", 8, 9),
		}, false},

		{"create", []line{create("a", 1, 2), not(create("b", 3, 4)), get("a", 5, 6)}, true},
		{"create where something is", []line{put("a", 1, 2), create("b", 3, 4)}, false},
		{"create refused where nothing is", []line{
			put("a", 1, 2), remove(3, 4), not(create("b", 5, 6)),
		}, false},
		{"two creates", []line{create("a", 1, 4), create("b", 2, 3)}, false},
		{"delete of nothing", []line{remove(1, 2)}, false},
		{"delete finds nothing", []line{put("a", 1, 2), not(remove(3, 4))}, false},
		{"two deletes of one value", []line{
			put("a", 1, 2), remove(3, 6), remove(4, 5),
		}, false},
		{"no such kind", []line{{op: Op{}, call: 1, back: 2}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h History
			record(&h, "k", tt.lines)
			v := h.Check(time.Minute)
			err := v.Err()
			if tt.want && err != nil {
				t.Errorf("Check: %v, want nil", err)
			}
			if !tt.want && !errors.Is(err, ErrNotLinear) {
				t.Errorf("Check: %v, want %v", err, ErrNotLinear)
			}
		})
	}
}

// TestCheckKeys checks that keys are judged by themselves, and which ones are named.
func TestCheckKeys(t *testing.T) {
	var h History
	record(&h, "good", []line{put("a", 1, 2), get("a", 3, 4)})
	record(&h, "stale", []line{put("a", 1, 2), put("b", 3, 4), get("a", 5, 6)})
	record(&h, "fine", []line{put("x", 1, 2)})
	record(&h, "lost", []line{put("a", 1, 2), get("", 3, 4)})
	v := h.Check(time.Minute)
	if got := strings.Join(v.Refused(), " "); got != "stale lost" {
		t.Errorf("refused are %q, want stale and lost", got)
	}
	if v.Keys != 4 || v.Operations != 8 {
		t.Errorf("%v, want 8 operations on 4 keys", v)
	}
	if text := v.Err().Error(); !strings.Contains(text, `get: "a"`) {
		t.Errorf("the error does not list the history: %s", text)
	}
}

// TestRefused checks that what certainly has no effect does not count.
func TestRefused(t *testing.T) {
	var h History
	h.Begin(1, Op{Kind: Put, Key: "k", Value: "a"}, 1).Done(2, Result{})
	h.Begin(2, Op{Kind: Put, Key: "k", Value: "b"}, 3).Refused()
	h.Begin(1, Op{Kind: Get, Key: "k"}, 4).Done(5, Result{Found: true, Value: "b"})
	if err := h.Check(time.Minute).Err(); !errors.Is(err, ErrNotLinear) {
		t.Errorf("a refused put was seen: %v, want %v", err, ErrNotLinear)
	}
}

// TestCheckLimit gives a check no time: it must say so, and neither go on nor call
// anything sound that it has not looked at.
func TestCheckLimit(t *testing.T) {
	var h History
	record(&h, "k", []line{put("a", 1, 2), get("a", 3, 4)})
	v := h.Check(time.Nanosecond)
	if err := v.Err(); !errors.Is(err, ErrUndecided) {
		t.Errorf("Check: %v, want %v", err, ErrUndecided)
	}
	if got := v.Undecided(); len(got) != 1 || got[0] != "k" {
		t.Errorf("undecided are %q, want k", got)
	}
}

// TestCheckHard gives a check more than it can do: many unknown writes, and a read
// that none of them explains.
func TestCheckHard(t *testing.T) {
	var h History
	var lines []line
	for i := range int64(40) {
		lines = append(lines, add(fmt.Sprint(i), i+1, 0))
	}
	record(&h, "k", append(lines, get("x", 100, 101)))
	begun := time.Now()
	v := h.Check(100 * time.Millisecond)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the check took %v, its limit is 100ms", took)
	}
	if err := v.Err(); !errors.Is(err, ErrUndecided) {
		t.Errorf("Check: %v, want %v", err, ErrUndecided)
	}
}

func TestDraw(t *testing.T) {
	var h History
	record(&h, "7/a b", []line{
		put("first", 1, 2), put("later", 3, 0), put("second", 3, 4), get("first", 5, 6),
	})
	v := h.Check(time.Minute)
	t.Setenv(envArtifacts, t.TempDir())
	paths, err := v.Draw(ArtifactDir(t))
	if err != nil || len(paths) != 1 {
		t.Fatalf("Draw: %v, %v, want one path", paths, err)
	}
	page, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "second") {
		t.Errorf("%s does not show the history", paths[0])
	}
}

func TestDrawNothing(t *testing.T) {
	var h History
	record(&h, "k", []line{put("a", 1, 2)})
	dir := t.TempDir()
	paths, err := h.Check(time.Minute).Draw(dir)
	if err != nil || len(paths) > 0 {
		t.Errorf("Draw of a sound history: %v, %v, want nothing", paths, err)
	}
}

// TestRows checks that a client that waits for ever does not hold its row of the
// picture: operations of one row must not overlap.
func TestRows(t *testing.T) {
	var h History
	h.Begin(5, Op{Kind: Put, Key: "k", Value: "a"}, 1).Unknown()
	h.Begin(5, Op{Kind: Put, Key: "k", Value: "b"}, 2).Done(3, Result{})
	h.Begin(5, Op{Kind: Put, Key: "k", Value: "c"}, 4).Done(5, Result{})
	p := h.parts()[0]
	ops := p.operations()
	if ops[0].ClientId == ops[1].ClientId || ops[1].ClientId != ops[2].ClientId {
		t.Errorf("rows are %d, %d, %d, want one and then another",
			ops[0].ClientId, ops[1].ClientId, ops[2].ClientId)
	}
}
