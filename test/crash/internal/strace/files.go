package strace

import (
	"strconv"
	"strings"
)

// Syncs returns the calls that have made the files durable whose path matches:
// those that have ended without an error.
func (t *Trace) Syncs(matches func(path string) bool) []*Call {
	mapped := make(map[string]string) // address: path
	var syncs []*Call
	for _, c := range t.Calls {
		first, _, _ := strings.Cut(c.Args, ",")
		path := c.File()
		switch c.Name {
		case "mmap":
			if c.OK && path != "" {
				mapped[address(c.Result)] = path
			}
			continue
		case "mremap":
			if c.OK {
				path = mapped[first]
				delete(mapped, first)
				mapped[address(c.Result)] = path
			}
			continue
		case "munmap":
			delete(mapped, first)
			continue
		case "msync":
			path = mapped[first]
		case "fsync", "fdatasync":
		default:
			continue
		}
		if c.OK && c.End.Line > 0 && path != "" && matches(path) {
			syncs = append(syncs, c)
		}
	}
	return syncs
}

func address(n int64) string { return "0x" + strconv.FormatInt(n, 16) }

// A Span is the time from the end of one call to the beginning of another.
type Span struct{ After, Before *Call }

// HoldsLine returns one of the calls that began after the span did and ended before
// it does, all in one trace; nil if there is none.
func (s Span) HoldsLine(calls []*Call) *Call {
	for _, c := range calls {
		if s.After.End.Line < c.Begin.Line && c.End.Line < s.Before.Begin.Line {
			return c
		}
	}
	return nil
}

// HoldsTime is HoldsLine for the calls of another process on the same machine.
func (s Span) HoldsTime(calls []*Call) *Call {
	for _, c := range calls {
		if s.After.End.At <= c.Begin.At && c.End.At <= s.Before.Begin.At {
			return c
		}
	}
	return nil
}
