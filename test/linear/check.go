package linear

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

var (
	// ErrNotLinear says that no order of events explains the history of a key.
	ErrNotLinear = errors.New("linear: not linearizable")

	// ErrUndecided says that the time was up before every key was checked. Of those
	// that were, each is linearizable.
	ErrUndecided = errors.New("linear: not decided")
)

// A Verdict is what a check has found.
type Verdict struct {
	// Operations and Keys are how many were checked.
	Operations, Keys int
	// Took is how long that took.
	Took time.Duration

	refused, undecided []part
}

// Check checks the history of each key, several at a time, and takes the limit at
// most, which must be positive. The history may be written on meanwhile: it is
// checked as it is at the begin.
func (h *History) Check(limit time.Duration) *Verdict {
	begun := time.Now()
	parts := h.parts()
	results := make([]porcupine.CheckResult, len(parts))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(parts); i = int(next.Add(1)) - 1 {
				results[i] = parts[i].check(limit - time.Since(begun))
			}
		})
	}
	wg.Wait()
	v := &Verdict{Keys: len(parts), Took: time.Since(begun)}
	for i, p := range parts {
		v.Operations += len(p.ops)
		switch results[i] {
		case porcupine.Ok:
		case porcupine.Illegal:
			v.refused = append(v.refused, p)
		default:
			v.undecided = append(v.undecided, p)
		}
	}
	return v
}

func (p *part) check(limit time.Duration) porcupine.CheckResult {
	if limit <= 0 {
		return porcupine.Unknown // and not without a limit, as the checker takes it
	}
	return porcupine.CheckOperationsTimeout(model(), p.operations(), limit)
}

// operations returns the part as the checker takes it. A client of which an
// outcome is unknown never hears again; what it does afterwards is another row of
// the picture.
func (p *part) operations() []porcupine.Operation {
	rows := make(map[int]int)
	fresh := 0
	ops := make([]porcupine.Operation, len(p.ops))
	for i := range p.ops {
		o := &p.ops[i]
		row, known := rows[o.client]
		if !known {
			row = fresh
			fresh++
			rows[o.client] = row
		}
		if o.state == unknown {
			delete(rows, o.client)
		}
		ops[i] = porcupine.Operation{
			ClientId: row, Call: o.call, Return: o.back,
			Input: o.Op, Output: told{Result: o.result, unknown: o.state == unknown},
			Metadata: fmt.Sprintf("client %d %s", o.client, o.note),
		}
	}
	return ops
}

// Refused returns the keys whose histories are not linearizable.
func (v *Verdict) Refused() []string { return keys(v.refused) }

// Undecided returns the keys that were not checked to the end.
func (v *Verdict) Undecided() []string { return keys(v.undecided) }

func keys(parts []part) []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.key)
	}
	return names
}

// Err returns nil if every key is linearizable. Otherwise it is [ErrNotLinear],
// with the history of the first key that is not, or [ErrUndecided].
func (v *Verdict) Err() error {
	switch {
	case len(v.refused) > 0:
		return fmt.Errorf("%w: %d of %d keys; the history of %s:\n%s",
			ErrNotLinear, len(v.refused), v.Keys, v.refused[0].key, v.refused[0].list())
	case len(v.undecided) > 0:
		return fmt.Errorf("%w within %v: %d of %d keys, the first is %s",
			ErrUndecided, v.Took.Round(time.Millisecond), len(v.undecided), v.Keys,
			v.undecided[0].key)
	default:
		return nil
	}
}

func (v *Verdict) String() string {
	return fmt.Sprintf("%d operations on %d keys checked in %.2fs: %d refused, %d undecided",
		v.Operations, v.Keys, v.Took.Seconds(), len(v.refused), len(v.undecided))
}

// list prints the part, a line for each operation, by when they were asked.
func (p *part) list() string {
	ops := slices.Clone(p.ops)
	slices.SortStableFunc(ops, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	var b strings.Builder
	for i := range ops {
		o := &ops[i]
		back := "..."
		if o.back != forever {
			back = time.Duration(o.back).String()
		}
		fmt.Fprintf(&b, "  %14v %14s client %d: %s (%s)\n",
			time.Duration(o.call), back, o.client, o, o.note)
	}
	return b.String()
}
