//go:build unix

package test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
)

// A load writes keys through all nodes from many clients, and keeps a ledger of
// what it was told about each write. A key belongs to one client, which writes it
// again only when it knows how the write before has ended.
//
// While there is a budget of keys that have not been written, clients write
// those; when it is used up they overwrite and delete keys that they have written,
// so that there is load for as long as the test wants some.
type load struct {
	nodes   []*cluster.Node
	groups  []raftyard.GroupID
	clients int
	prefix  string
	size    int // of a value, bytes
	keys    []ledger
	tally   *tally

	budget  atomic.Int64 // keys with a smaller index may be written
	written atomic.Int64 // keys of which a write is acknowledged

	stop chan struct{}
	wg   sync.WaitGroup
}

// A ledger is what is known of one key.
type ledger struct {
	attempts int
	acked    version   // the last write that is acknowledged
	maybe    []version // writes that may have happened, or may still happen
}

// A version is what one attempt to write a key leaves there. The zero version is
// the key before its first write.
type version struct {
	attempt int
	deleted bool
}

// absent reports whether the key is not there.
func (v version) absent() bool { return v.deleted || v.attempt == 0 }

// allows reports whether the key may be at a version.
func (l *ledger) allows(v version) bool {
	for _, m := range append(l.maybe, l.acked) {
		if m == v || (m.absent() && v.absent()) {
			return true
		}
	}
	return false
}

// loadSpec says what load a test wants.
type loadSpec struct {
	nodes   []*cluster.Node
	groups  []raftyard.GroupID
	clients int
	keys    int
	prefix  string // of the names of the keys; default: key
	size    int    // of a value, bytes; at least 32
}

func newLoad(s loadSpec) *load {
	return &load{
		nodes: s.nodes, groups: s.groups, clients: s.clients,
		prefix: cmp.Or(s.prefix, "key"), size: max(s.size, 32),
		keys: make([]ledger, s.keys), tally: newTally(), stop: make(chan struct{}),
	}
}

// start lets the clients go. They have no keys to write yet.
func (l *load) start(t *testing.T) {
	l.tally = newTally() // its clock starts now
	for w := range l.clients {
		l.wg.Go(func() { l.run(t.Context(), w) })
	}
	t.Cleanup(l.end)
}

// end waits until every client has finished what it was doing.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wg.Wait()
}

func (l *load) ended() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// run is one client.
func (l *load) run(ctx context.Context, w int) {
	next := w // the first of the client's keys that it has not written
	for !l.ended() && ctx.Err() == nil {
		i, deletes := next, false
		switch {
		case int64(next) < min(l.budget.Load(), int64(len(l.keys))):
			next += l.clients
		case next == w:
			l.pause() // nothing to write yet
			continue
		default:
			i = w + l.clients*rand.N((next-w)/l.clients)
			deletes = rand.N(8) == 0
		}
		l.write(ctx, i, deletes)
	}
}

func (l *load) pause() { pause(l.stop) }

// pauseRefused is how long a client waits that was refused.
const pauseRefused = 10 * time.Millisecond

// pause keeps a client that was refused from asking again at once.
func pause(stop <-chan struct{}) { cluster.Pause(stop, pauseRefused) }

// write writes a key until a write is acknowledged, each attempt with a value of
// its own.
func (l *load) write(ctx context.Context, i int, deletes bool) {
	k := &l.keys[i]
	g := l.groupOf(i)
	for ctx.Err() == nil {
		k.attempts++
		v := version{attempt: k.attempts, deleted: deletes}
		r := cluster.Request{Method: http.MethodPut, Path: cluster.KeyPath(g, l.name(i))}
		if deletes {
			r.Method = http.MethodDelete
		} else {
			r.Body = []byte(l.value(i, v.attempt))
		}
		a := l.nodes[rand.N(len(l.nodes))].Do(ctx, r)
		l.tally.note(g, a)
		switch a.Outcome {
		case cluster.Applied:
			if k.acked.attempt == 0 {
				l.written.Add(1)
			}
			k.acked = v
			return
		case cluster.Unknown:
			k.maybe = append(k.maybe, v)
		case cluster.NotApplied:
		}
		if l.ended() {
			return
		}
		l.pause()
	}
}

func (l *load) groupOf(i int) raftyard.GroupID { return l.groups[i%len(l.groups)] }

func (l *load) name(i int) string { return fmt.Sprintf("%s/%08d", l.prefix, i) }

// index returns the index of the key with a name.
func (l *load) index(name string) (int, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(name, l.prefix+"/"))
	if err != nil || i < 0 || i >= len(l.keys) || l.name(i) != name {
		return 0, fmt.Errorf("nobody has written a key %q", name)
	}
	return i, nil
}

// value returns what an attempt writes: no two are alike.
func (l *load) value(i, attempt int) string {
	head := fmt.Sprintf("%08d %06d ", i, attempt)
	return head + strings.Repeat("raftyard.", l.size/9+1)[:l.size-len(head)]
}

// versionOf returns which version of a key a value is.
func (l *load) versionOf(i int, value []byte) (version, error) {
	parts := strings.SplitN(string(value), " ", 3)
	if len(parts) == 3 {
		attempt, err := strconv.Atoi(parts[1])
		if err == nil && l.value(i, attempt) == string(value) {
			return version{attempt: attempt}, nil
		}
	}
	return version{}, fmt.Errorf("nobody has written the value %.60q of %d bytes",
		value, len(value))
}

// grant lets the clients write keys up to a part of all.
func (l *load) grant(part, of int) int64 {
	n := int64(len(l.keys)) * int64(part) / int64(of)
	l.budget.Store(n)
	return n
}

// stallLimit is for how long no write at all may succeed.
const stallLimit = 60 * time.Second

// await waits until a condition holds, and fails the test when the load stalls.
func (l *load) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := cluster.Poll(t.Context(), func() (bool, error) {
		if quiet := l.tally.quiet(); quiet > stallLimit {
			return false, l.tally.stalled()
		}
		return done(), nil
	})
	if err != nil {
		t.Fatalf("wait until %s: %v; so far %v", what, err, l.tally)
	}
}

// awaitWritten waits until so many keys are acknowledged.
func (l *load) awaitWritten(t *testing.T, n int64) {
	t.Helper()
	l.await(t, fmt.Sprintf("%d keys are written", n), func() bool { return l.written.Load() >= n })
}

// awaitApplied waits until n more writes have succeeded.
func (l *load) awaitApplied(t *testing.T, n int) {
	t.Helper()
	want := l.tally.applied() + n
	l.await(t, fmt.Sprintf("%d more writes are done", n), func() bool {
		return l.tally.applied() >= want
	})
}
