package lineage

import (
	"errors"
	"reflect"
	"testing"

	"github.com/raftyard/raftyard/internal/wire"
)

// start is start boot of a directory or, with another line, of a copy of it.
func start(boot uint64, line byte) Start {
	return Start{Boot: boot, Process: [16]byte{line, byte(boot), byte(boot >> 8)}}
}

// starts are those of a directory up to boot, of which a copy was made after start copied.
func starts(boot, copied uint64) Lineage {
	l := Lineage{Since: 1}
	for b := uint64(1); b <= boot; b++ {
		if b > copied {
			l = l.Then(start(b, 2), Start{})
		} else {
			l = l.Then(start(b, 1), Start{})
		}
	}
	return l
}

func TestFollows(t *testing.T) {
	original, copied := starts(6, 6), starts(9, 4)
	counted := Start{Boot: 5}
	tests := []struct {
		name  string
		l     Lineage
		known Start
		want  bool
	}{
		{"itself", original, start(6, 1), true},
		{"the start before", original, start(5, 1), true},
		{"the first one", original, start(1, 1), true},
		{"nothing is known", original, Start{}, true},
		{"only the number is known", original, counted, true},
		{"a later number is known", starts(4, 4), counted, false},
		{"an earlier start", original, start(7, 1), false},
		{"a copy, made later", copied, start(4, 1), true},
		{"a copy, made earlier", copied, start(5, 1), false},
		{"a copy that was started more often", copied, start(6, 1), false},
		{"a copy that was started as often", starts(6, 4), start(6, 1), false},
		{"none that was kept", Lineage{Since: 6}.Then(start(6, 1), Start{}), start(5, 1), true},
		{"one that is not there", Lineage{Since: 5}.Then(start(6, 1), Start{}), start(5, 1), false},
		{"one that was dropped", starts(MaxStarts+6, 1000), start(6, 1), false},
		{"the oldest that is there", starts(MaxStarts+6, 1000), start(7, 1), true},
		{"no starts", Lineage{}, start(1, 1), false},
	}
	for _, tt := range tests {
		if got := tt.l.Follows(tt.known); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestOneStartIsKept: however many there are, the one that the others know stays.
func TestOneStartIsKept(t *testing.T) {
	l := starts(3, 3)
	for b := uint64(4); b < 4*MaxStarts; b++ {
		l = l.Then(start(b, 1), start(2, 1))
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if !l.Full() || l.Starts[0] != start(2, 1) || l.Starts[1] != start(3*MaxStarts+1, 1) {
		t.Errorf("%d starts, the first are %v", len(l.Starts), l.Starts[:2])
	}
}

func TestThenChangesNothing(t *testing.T) {
	l := starts(5, 5)
	one, two := l.Then(start(6, 1), Start{}), l.Then(start(6, 2), Start{})
	if one.Last() != start(6, 1) || two.Last() != start(6, 2) ||
		!reflect.DeepEqual(l, starts(5, 5)) {
		t.Errorf("%v and %v", one.Last(), two.Last())
	}
}

func TestDecode(t *testing.T) {
	present := start(70, 1)
	full := starts(70, 70)
	if got, err := Decode(full.Encode(), present); err != nil || !reflect.DeepEqual(got, full) {
		t.Errorf("Decode = %v, %v", got, err)
	}
	if n := len(full.Encode()); n > 2<<10 {
		t.Errorf("%d bytes", n)
	}
	old, err := Decode("", present)
	if err != nil || !old.Follows(start(69, 2)) || old.Follows(start(70, 2)) {
		t.Errorf("a release that shows nothing: %v, %v", old, err)
	}
	many := starts(MaxStarts, MaxStarts)
	many.Starts = append(many.Starts, start(MaxStarts+1, 1))
	double := Lineage{Since: 1, Starts: []Start{start(4, 1), start(4, 1)}}
	early := Lineage{Since: 5, Starts: []Start{start(4, 1)}}
	nobody := Lineage{Since: 1, Starts: []Start{{Boot: 4}}}
	for name, shown := range map[string]string{
		"cut off":         full.Encode()[:40],
		"too long":        full.Encode() + "x",
		"another start":   starts(69, 69).Encode(),
		"another process": starts(70, 60).Encode(),
		"too many":        many.Encode(),
		"out of order":    double.Encode(),
		"not kept yet":    early.Encode(),
		"no process":      nobody.Encode(),
		"no first start":  Lineage{Starts: []Start{present}}.Encode(),
		"no start":        string(Lineage{Since: 1}.Append(nil)),
	} {
		last := present
		switch name {
		case "too many":
			last = many.Last()
		case "out of order", "not kept yet":
			last = start(4, 1)
		case "no process":
			last = nobody.Last()
		}
		if _, err := Decode(shown, last); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Decode("\xff", present); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("Decode = %v, want ErrMalformed", err)
	}
}
