package strace

import (
	"bytes"
	"fmt"
	"slices"
)

// A Commit is a write to a file, and the sync that has made it durable.
type Commit struct {
	Write, Sync *Call
	Data        []byte // what was written
}

// Commits returns the writes to files whose path matches that were made durable: each with the
// first sync of its file that began when the write had ended, and has ended without an error.
func (t *Trace) Commits(matches func(path string) bool) ([]Commit, error) {
	var commits []Commit
	open := make(map[string][]int) // of each file those that no sync has covered yet
	for _, c := range t.Calls {
		path := c.File()
		if !c.OK || c.End.Line == 0 || path == "" || !matches(path) {
			continue
		}
		switch c.Name {
		case "pwrite64":
			data, err := c.Data()
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", c.Begin.Line, err)
			}
			open[path] = append(open[path], len(commits))
			commits = append(commits, Commit{Write: c, Data: data})
		case "fsync", "fdatasync":
			open[path] = slices.DeleteFunc(open[path], func(i int) bool {
				covered := commits[i].Write.End.Line < c.Begin.Line
				if covered {
					commits[i].Sync = c
				}
				return covered
			})
		}
	}
	return slices.DeleteFunc(commits, func(c Commit) bool { return c.Sync == nil }), nil
}

// With returns the commits that have written a mark.
func With(commits []Commit, mark string) []Commit {
	var found []Commit
	for _, c := range commits {
		if bytes.Contains(c.Data, []byte(mark)) {
			found = append(found, c)
		}
	}
	return found
}

// A Span is the time from the end of one call to the beginning of another.
type Span struct{ After, Before *Call }

// HoldsLine reports whether one of the commits was written after the span began and was durable
// before it ends, all in one trace.
func (s Span) HoldsLine(commits []Commit) bool {
	return slices.ContainsFunc(commits, func(c Commit) bool {
		return s.After.End.Line < c.Write.Begin.Line && c.Sync.End.Line < s.Before.Begin.Line
	})
}

// HoldsTime is HoldsLine for the commits of another process on the same machine.
func (s Span) HoldsTime(commits []Commit) bool {
	return slices.ContainsFunc(commits, func(c Commit) bool {
		return s.After.End.At <= c.Write.Begin.At && c.Sync.End.At <= s.Before.Begin.At
	})
}
