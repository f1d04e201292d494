package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A Layer is where a value can come from. A later one wins.
type Layer uint8

// The layers, from the weakest to the strongest.
const (
	Default Layer = iota
	File
	Environment
	Flag
)

// An Origin says where a value was written.
type Origin struct {
	Layer Layer
	Name  string // of the file, the variable or the flag
	Line  int    // in the file, from 1; zero when the layer has no lines
}

// String returns the origin as a person looks for it: node.yaml:12,
// RAFTYARD_DATA_DIR, --data-dir or default.
func (o Origin) String() string {
	switch {
	case o.Layer == Default:
		return "default"
	case o.Layer == File && o.Line > 0:
		return o.Name + ":" + strconv.Itoa(o.Line)
	default:
		return o.Name
	}
}

// A Problem is one thing that is wrong with a configuration, or with a
// [Problem.Warning] merely odd.
type Problem struct {
	Origin Origin
	Key    string // such as groups[1].voters; empty: the file as a whole
	Value  string // as written; empty: nothing was
	Want   string // the expected form
	// Hint says more, such as what the key may have been meant to be.
	Hint string
	// Warning: the configuration can be used all the same.
	Warning bool
}

// String returns the problem in one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Origin.String())
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	if p.Value != "" {
		b.WriteString(strconv.Quote(shorten(p.Value)) + ": ")
	}
	b.WriteString(p.Want)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// shorten keeps a value from filling the screen.
func shorten(value string) string {
	const most = 80
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "..."
}

// An Error holds everything that makes a configuration unusable, in the order in
// which it stands in the file.
type Error struct {
	Problems []Problem
}

// Error returns one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// compareProblems orders by layer, then by place, so that a reader can go
// through a file from top to bottom. Problems of one line keep their order.
func compareProblems(a, b Problem) int {
	return cmp.Or(
		cmp.Compare(a.Origin.Layer, b.Origin.Layer),
		cmp.Compare(a.Origin.Line, b.Origin.Line),
		cmp.Compare(a.Origin.Name, b.Origin.Name),
	)
}

// A report collects the problems found so far.
type report struct {
	problems []Problem
}

func (r *report) add(p Problem) { r.problems = append(r.problems, p) }

// bad reports that the value v of key is not what it should be.
func (r *report) bad(v value, key, format string, args ...any) {
	r.add(Problem{
		Origin: v.origin, Key: key, Value: v.describe(), Want: fmt.Sprintf(format, args...),
	})
}

// odd reports something that works but is hardly meant.
func (r *report) odd(origin Origin, key, format string, args ...any) {
	r.add(Problem{Origin: origin, Key: key, Want: fmt.Sprintf(format, args...), Warning: true})
}
