//go:build linux

package memory

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestSpaceComesBack writes over the same hundred keys, of 64 KiB and of as much as a value
// may have, in ten groups. What a node takes of the disk must stay below what docs/memory.md says,
// and come down by itself when nobody writes any more. RAFTYARD_SPACE_BYTES is how much
// is written, in place of the usual size.
func TestSpaceComesBack(t *testing.T) {
	cluster.Long(t)
	const groups, keys = 10, 10
	total := int64(cluster.Sized(256*mib, 20<<30))
	if text := os.Getenv("RAFTYARD_SPACE_BYTES"); text != "" {
		var err error
		if total, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	size := func(key int) int {
		if key%2 == 0 {
			return 64 << 10
		}
		return kv.MaxValueBytes
	}
	live := int64(0)
	for k := range keys {
		live += groups * int64(size(k))
	}
	c := cluster.New(t, cluster.Config{})
	c.Start()
	l := &load{
		nodes: c.Nodes(), groups: createGroups(t, c, groups),
		clients: 20, keys: keys, size: size,
	}
	w := newWatch(t, &watch{nodes: c.Nodes(), disk: true})
	newLoad(t, l)
	w.passedBy(l)
	for l.passed.Load() < total {
		pause(t.Context().Done())
	}
	l.ended(t)
	busy := w.peak().allocated
	bound := spaceBound(groups, live)
	t.Logf("%d MiB written in %v, %d MiB are alive: %d MiB of the disk at most, bound %d",
		l.passed.Load()/mib, time.Since(w.begun).Round(time.Second), live/mib, busy/mib, bound/mib)
	if busy > bound {
		t.Errorf("a node took %d MiB of the disk, want %d at most", busy/mib, bound/mib)
	}
	if !cluster.FullScale() {
		w.check(t, ownBound)
		return // it comes back when nothing was written for two minutes
	}
	stopped := time.Now()
	cluster.Eventually(t, 10*time.Minute, "the space is back", func() error {
		logs, err := logBytes(t, c, l.groups)
		rest := quietBound(logs, live)
		if now := w.last().allocated; err == nil && now > rest {
			err = fmt.Errorf("%d MiB, want %d", now/mib, rest/mib)
		}
		return err
	})
	t.Logf("back at %d MiB of the disk %v after the last write",
		w.last().allocated/mib, time.Since(stopped).Round(time.Second))
	w.check(t, ownBound)
}

// spaceBound is what a node may take of the disk under load: three times what is alive in
// both databases, and a gigabyte. A log has as much behind its snapshot as before it.
func spaceBound(groups int, live int64) int64 {
	const logBytes = 64 * mib
	return 3*(live+int64(groups)*2*logBytes) + 1<<30
}

// quietBound is what a node may take when it has been quiet for some minutes: half as much
// again as what its databases hold, and what both of them need to be open.
func quietBound(logs, live int64) int64 { return (logs+live)*3/2 + 640*mib }

// logBytes returns how much log the node has that has most.
func logBytes(t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID) (int64, error) {
	t.Helper()
	var most int64
	for _, n := range c.Nodes() {
		var sum int64
		for _, g := range groups {
			r, err := n.Raft(t.Context(), g)
			if err != nil {
				return 0, err
			}
			sum += r.LogBytes
		}
		most = max(most, sum)
	}
	return most, nil
}
