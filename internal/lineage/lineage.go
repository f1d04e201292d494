// Package lineage tells a later start of a data directory from a start of an older copy
// of it.
//
// Each start of a directory has a number, and an id that is made at random. The directory
// keeps those of its starts, and a process shows them to whomever it talks to. Whoever
// knows one start takes a later one for the same directory's only if that shows the start
// that is known: a copy that was made before it cannot, however often it is started.
package lineage

import (
	"errors"
	"fmt"

	"github.com/raftyard/raftyard/internal/wire"
)

// MaxStarts is how many starts a lineage has at most.
const MaxStarts = 64

// A Start is one start of a directory.
type Start struct {
	Boot    uint64   // its number, from 1 on
	Process [16]byte // made at random; zero if only the number is known
}

// A Lineage is the starts of a directory that somebody may have heard of, up to the present
// one. The zero value has none. It does not change: Then returns another one.
type Lineage struct {
	// Since is the number of the first start that can be in it: the directory did not
	// keep those before.
	Since uint64

	// Starts are in the order of their numbers. When there are more than MaxStarts the
	// oldest are dropped.
	Starts []Start
}

// Then returns the lineage with one more start. If one must be dropped for it, that is the
// oldest one other than keep.
func (l Lineage) Then(next, keep Start) Lineage {
	starts := make([]Start, 0, len(l.Starts)+1)
	excess := len(l.Starts) + 1 - MaxStarts
	for _, s := range l.Starts {
		if excess > 0 && s != keep {
			excess--
			continue
		}
		starts = append(starts, s)
	}
	return Lineage{Since: l.Since, Starts: append(starts, next)}
}

// Last is the present start, or zero.
func (l Lineage) Last() Start {
	if len(l.Starts) == 0 {
		return Start{}
	}
	return l.Starts[len(l.Starts)-1]
}

// Follows reports whether the present start is known, or a later one of the same directory:
// whether it shows that start. One from before starts were kept need not be shown, and of
// one of which only the number is known the number counts.
func (l Lineage) Follows(known Start) bool {
	if known.Boot > l.Last().Boot {
		return false
	}
	if known.Boot < l.Since || known.Process == [16]byte{} {
		return true
	}
	for _, s := range l.Starts {
		if s.Boot == known.Boot {
			return s.Process == known.Process
		}
	}
	return false
}

// Full reports whether starts may have been dropped: that one is not shown does not
// say then that it was another directory's.
func (l Lineage) Full() bool { return len(l.Starts) == MaxStarts }

// Check returns what is wrong with a lineage that somebody shows.
func (l Lineage) Check() error {
	if len(l.Starts) > MaxStarts {
		return fmt.Errorf("%d starts, the limit is %d", len(l.Starts), MaxStarts)
	}
	if len(l.Starts) > 0 && l.Since == 0 {
		return errors.New("starts since start 0")
	}
	least := l.Since
	for _, s := range l.Starts {
		switch {
		case s.Process == [16]byte{}:
			return fmt.Errorf("start %d has no process", s.Boot)
		case s.Boot < least:
			return fmt.Errorf("start %d is out of order", s.Boot)
		}
		least = s.Boot + 1
	}
	return nil
}

// Append appends the encoded lineage.
func (l Lineage) Append(b []byte) []byte {
	b = wire.AppendUvarint(b, l.Since)
	b = wire.AppendUvarint(b, uint64(len(l.Starts)))
	for _, s := range l.Starts {
		b = wire.AppendUvarint(b, s.Boot)
		b = wire.AppendID(b, s.Process)
	}
	return b
}

// Read reads what Append has appended, and checks it.
func Read(r *wire.Reader) Lineage {
	l := Lineage{Since: r.Uvarint()}
	for range r.Count(1 + len(Start{}.Process)) {
		l.Starts = append(l.Starts, Start{Boot: r.Uvarint(), Process: r.ID()})
	}
	if err := l.Check(); err != nil && r.Err() == nil {
		r.Fail("lineage: %v", err)
	}
	if r.Err() != nil {
		return Lineage{}
	}
	return l
}

// Encode returns the encoded lineage, as [Decode] takes it. It is empty if there are no
// starts.
func (l Lineage) Encode() string {
	if len(l.Starts) == 0 {
		return ""
	}
	return string(l.Append(nil))
}

// Decode decodes what a process shows that says that it is a start of a directory. A
// process of a release that kept no starts shows none: it is taken for the first that
// keeps them.
func Decode(shown string, present Start) (Lineage, error) {
	if shown == "" {
		return Lineage{Since: present.Boot, Starts: []Start{present}}, nil
	}
	r := wire.NewReader([]byte(shown))
	l := Read(r)
	if err := r.Close(); err != nil {
		return Lineage{}, fmt.Errorf("lineage: %w", err)
	}
	if l.Last() != present {
		return Lineage{}, fmt.Errorf("lineage: it ends with start %d, not with %d",
			l.Last().Boot, present.Boot)
	}
	return l, nil
}
