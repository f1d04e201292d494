package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// TestStoresAreKnownAtOnce starts each node of a cluster again, alone. Its registry
// then holds what is certainly committed, which may be less than it had applied; whose
// directory is whose it must know before it hears anybody.
func TestStoresAreKnownAtOnce(t *testing.T) {
	c := newCluster(t, 3)
	c.eventually("every node has noted the three", func() bool {
		for _, n := range c.nodes {
			for id := range raftyard.NodeID(3) {
				if n.noted.of(id + 1).Store.IsZero() {
					return false
				}
			}
		}
		return true
	})
	for _, p := range c.peers {
		c.close(p.ID)
	}
	for _, p := range c.peers {
		c.open(p.ID, nil)
		n := c.nodes[p.ID]
		for _, other := range c.peers {
			if !n.foreignStore(other.ID, registry.Store{9}) {
				t.Errorf("node %d would take anybody for node %d", p.ID, other.ID)
			}
		}
		c.close(p.ID)
	}
}

// TestOlderCopyIsKnownAfterRestart puts an older copy of a data directory in its place.
// That there was a later start must be known to those, too, who have started since.
func TestOlderCopyIsKnownAfterRestart(t *testing.T) {
	c := newCluster(t, 3)
	c.eventually("every node is ready", func() bool {
		return !slices.ContainsFunc(c.peers, func(p Peer) bool {
			ready, _ := c.nodes[p.ID].Ready()
			return !ready
		})
	})
	dir, image := c.config(3, nil).Dir, filepath.Join(c.dir, "image")
	c.close(3)
	if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.open(3, nil)
		boot := c.nodes[3].store.Identity().Boot
		c.eventually("its start is noted", func() bool {
			return c.nodes[1].noted.of(3).Boot == boot && c.nodes[2].noted.of(3).Boot == boot
		})
		c.close(3)
	}
	for _, id := range []raftyard.NodeID{1, 2} {
		c.close(id)
		c.open(id, nil)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(image, dir); err != nil {
		t.Fatal(err)
	}
	c.open(3, nil)
	c.eventually("both refuse the older copy", func() bool {
		peers := c.nodes[3].transport.Peers()
		return len(peers) == 2 && !slices.ContainsFunc(peers, func(p transport.PeerStatus) bool {
			ref, ok := errors.AsType[*transport.RefusalError](p.LastError)
			return p.Up || !ok || ref.Code != transport.RefusedStale
		})
	})
}

// TestDeletedWhileDown deletes a group and creates it again while the only node that
// had it is down. Alone, that node has a majority of the old one, and must not use it.
func TestDeletedWhileDown(t *testing.T) {
	c := newCluster(t, 3)
	c.create(7, 3)
	c.add(1, 7, "old")
	c.close(3)
	err := c.nodes[1].ForceDeleteGroup(t.Context(), 7, c.incarnation(1, 7))
	if !errors.Is(err, ErrNotReached) {
		t.Fatal(err)
	}
	c.create(7, 1)
	c.add(1, 7, "new")
	c.close(1)
	c.close(2)
	c.open(3, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = c.nodes[3].Propose(ctx, 7, []byte("lost"))
	if !NotApplied(err) || !errors.Is(err, ErrNotReady) {
		t.Errorf("a write to the deleted group ended with %v", err)
	}
	if answer, err := c.nodes[3].Query(ctx, 7, Stale, nil); err == nil {
		t.Errorf("the deleted group was read: %q", answer)
	}
	c.open(1, nil)
	c.open(2, nil)
	c.wantWords(3, 7, "new")
}
