package storage

import "slices"

// termRun says that the entries from index on have the given term, up to the
// next run.
type termRun struct{ index, term uint64 }

// terms is the term of every entry of a log. Terms change with leaders, so the
// runs are few. The first run begins at the log's start, whose term raft asks
// for though its entry is gone.
//
// Invariant: there is at least one run, and the indexes rise strictly.
type terms []termRun

// start returns the index before the first entry, and its term.
func (t terms) start() termRun { return t[0] }

// at returns the term of entry i, which must be at or after the start.
func (t terms) at(i uint64) uint64 {
	n, found := slices.BinarySearchFunc(t, i, func(r termRun, i uint64) int {
		switch {
		case r.index < i:
			return -1
		case r.index > i:
			return 1
		default:
			return 0
		}
	})
	if !found {
		n--
	}
	return t[n].term
}

// cut removes the entries from index i on, which must be after the start.
func (t terms) cut(i uint64) terms {
	for len(t) > 1 && t[len(t)-1].index >= i {
		t = t[:len(t)-1]
	}
	return t
}

// push appends entry i.
func (t terms) push(i, term uint64) terms {
	if t[len(t)-1].term == term {
		return t
	}
	return append(t, termRun{i, term})
}

// drop moves the start to entry i, which must be at or after it.
func (t terms) drop(i uint64) terms {
	start := termRun{i, t.at(i)}
	n := 0
	for n+1 < len(t) && t[n+1].index <= i {
		n++
	}
	t = slices.Delete(t, 0, n)
	t[0] = start
	return t
}

// splice replaces the entries from index first on by the runs of entries
// [first, end). What of them is not after the start is left out.
func (t terms) splice(first, end uint64, runs []termRun) terms {
	begin := max(first, t.start().index+1)
	if begin >= end {
		return t
	}
	t = t.cut(begin)
	for n, run := range runs {
		if n+1 < len(runs) && runs[n+1].index <= begin {
			continue // ends before the start
		}
		t = t.push(max(run.index, begin), run.term)
	}
	return t
}
