//go:build unix

package test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestCatchesUpOverASlowLink has a node come back over a link of 10 Mbit/s while its group is
// written to, and takes its next snapshot long before the last one has arrived. What comes
// behind the snapshot on its way must be kept for the node, or it would need another one on
// arrival, for ever. Meanwhile it answers its probes, and is not given the leadership.
func TestCatchesUpOverASlowLink(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		writers int
		apart   time.Duration
	}{
		{"some writes", 1, 15 * time.Millisecond},
		// Several snapshots are taken while the node gets what has come behind the one.
		{"many writes", 8, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			catchUp(t, tt.writers, tt.apart)
		})
	}
}

func catchUp(t *testing.T, writers int, apart time.Duration) {
	t.Helper()
	const (
		g     = raftyard.GroupID(1)
		every = 10
		rate  = 10_000_000 / 8 // bytes a second
	)
	c := cluster.New(t, cluster.Config{Links: true})
	c.Start()
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries, spec.TrailingEntries = every, every/2
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, spec)
	leader, away := c.Node(1), c.Node(3)
	leadAll(t, leader, []raftyard.GroupID{g})
	putBallast(t, leader, g, cluster.Sized(3<<20, 32<<20))
	verifyHashes(t, c.Nodes(), []raftyard.GroupID{g})
	away.Kill()
	var ws []*steady
	for i := range writers {
		ws = append(ws, newSteady(t, c.Nodes()[:2], g, i, apart))
	}
	for _, w := range ws {
		w.awaitWritten(t, 4*every) // the log is cut beyond what the node has
	}
	c.Network().Set(cluster.Condition{BytesPerSecond: rate},
		cluster.Between(ids([]*cluster.Node{away}), ids(c.Nodes()[:2]))...)
	before := snapshots(t, leader, "taken")
	away.Start()
	cluster.Eventually(t, startLimit, "a snapshot is on its way", func() error {
		return want(isSentSnapshot(t, leader, g, away.ID()), "none is")
	})
	const patience = 10 * time.Second
	if a := leader.Transfer(t.Context(), g, away.ID(), patience); a.Outcome != cluster.NotApplied ||
		a.Why != client.CodeTransferFailed || !strings.Contains(a.String(), "snapshot") {
		t.Errorf("a transfer to a node that is being sent a snapshot: %v", a)
	}
	asked := 0
	cluster.Eventually(t, settleLimit, "the node catches up", func() error {
		wantWell(t, away, "/livez")
		asked++
		r, err := away.Raft(t.Context(), g)
		commit := raftOf(t, leader, g).Commit
		return cmp.Or(err, want(r.Snapshot > 0 && r.Applied+every >= commit,
			"it is at %d of %d", r.Applied, commit))
	})
	wantWell(t, away, "/readyz")
	taken, installed := snapshots(t, leader, "taken")-before, snapshots(t, away, "installed")
	var written []string
	for _, w := range ws {
		written = append(written, w.end(t)...)
	}
	t.Logf("asked %d times while it caught up by %.0f snapshots, of %.0f that were taken; "+
		"%d writes", asked, installed, taken, len(written))
	if taken < 3 {
		t.Errorf("%.0f snapshots were taken meanwhile: none was out of date on arrival", taken)
	}
	if installed > 3 {
		t.Errorf("%.0f snapshots were installed, want one, and few more at most", installed)
	}
	c.Network().Heal()
	for _, n := range c.Nodes() {
		wantWritten(t, n, g, written)
	}
	verifyHashes(t, c.Nodes(), []raftyard.GroupID{g})
	cluster.Eventually(t, settleLimit, "nothing is kept any more for who has come back",
		func() error {
			if err := put(t, leader, g, "once more", nil); err != nil {
				return err
			}
			r := raftOf(t, leader, g)
			return want(r.Last-r.First < 3*every, "the log is %d to %d", r.First, r.Last)
		})
	if a := leader.Transfer(t.Context(), g, away.ID(), patience); a.Error() != nil {
		t.Errorf("a transfer to the node that has caught up: %v", a)
	}
}

// A steady writer writes keys of a group one after the other, with some time in between.
type steady struct {
	nodes []*cluster.Node
	group raftyard.GroupID
	id    int
	apart time.Duration
	stop  chan struct{}
	done  chan struct{}
	count atomic.Int64
	err   error // read when it has ended
}

func newSteady(
	t *testing.T, nodes []*cluster.Node, g raftyard.GroupID, id int, apart time.Duration,
) *steady {
	t.Helper()
	w := &steady{
		nodes: nodes, group: g, id: id, apart: apart,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go func() {
		defer close(w.done)
		w.err = w.run(t)
	}()
	t.Cleanup(w.halt)
	return w
}

func (w *steady) run(t *testing.T) error {
	for i := 0; ; i++ {
		err := put(t, w.nodes[i%len(w.nodes)], w.group, w.key(i), []byte(w.key(i)))
		if err != nil {
			return err
		}
		w.count.Add(1)
		cluster.Pause(w.stop, w.apart)
		select {
		case <-w.stop:
			return nil
		default:
		}
	}
}

func (w *steady) key(i int) string { return fmt.Sprintf("steady-%d-%06d", w.id, i) }

func (w *steady) halt() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.done
}

// end stops the writer, none of whose writes may have failed, and returns their keys.
func (w *steady) end(t *testing.T) []string {
	t.Helper()
	w.halt()
	if w.err != nil {
		t.Fatal(w.err)
	}
	keys := make([]string, w.count.Load())
	for i := range keys {
		keys[i] = w.key(i)
	}
	return keys
}

// awaitWritten waits until so many more are written.
func (w *steady) awaitWritten(t *testing.T, n int64) {
	t.Helper()
	until := w.count.Load() + n
	cluster.Eventually(t, stallLimit, "more is written", func() error {
		now := w.count.Load()
		return want(now >= until, "%d writes, want %d", now, until)
	})
}

// wantWritten checks that a node lists the keys that were written.
func wantWritten(t *testing.T, n *cluster.Node, g raftyard.GroupID, keys []string) {
	t.Helper()
	there := make(map[string]bool)
	err := n.List(t.Context(), g, client.Linearizable, func(item client.Item) {
		there[string(item.Key)] = bytes.Equal(item.Key, item.Value)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if !there[key] {
			t.Errorf("node %d: %s was acknowledged, and is not there", n.ID(), key)
		}
	}
}

// putBallast writes so many bytes that do not shrink when they are compressed.
func putBallast(t *testing.T, n *cluster.Node, g raftyard.GroupID, size int) {
	t.Helper()
	const each = 512 << 10
	for i := range size / each {
		value := make([]byte, each)
		for j := range value {
			value[j] = byte(rand.N(256))
		}
		if err := put(t, n, g, fmt.Sprintf("ballast-%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
}

// isSentSnapshot reports whether a leader sends a snapshot to a node.
func isSentSnapshot(
	t *testing.T, leader *cluster.Node, g raftyard.GroupID, to raftyard.NodeID,
) bool {
	t.Helper()
	for _, p := range raftOf(t, leader, g).Progress {
		if p.Node == to {
			return p.State == "snapshot"
		}
	}
	return false
}

// snapshots returns of how many snapshots a node says something.
func snapshots(t *testing.T, n *cluster.Node, what string) float64 {
	t.Helper()
	count, err := n.Metric(t.Context(), "raftyard_snapshots_total", `what="`+what+`"`)
	if err != nil {
		t.Fatal(err)
	}
	return count
}
