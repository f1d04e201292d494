package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// copyOf copies the data directory of a node that is closed.
func (c *cluster) copyOf(id raftyard.NodeID) string {
	c.t.Helper()
	image := filepath.Join(c.dir, "image")
	if err := os.CopyFS(image, os.DirFS(c.config(id, nil).Dir)); err != nil {
		c.t.Fatal(err)
	}
	return image
}

// putBack puts a copy in the place of the data directory of a node that is closed.
func (c *cluster) putBack(id raftyard.NodeID, image string) {
	c.t.Helper()
	dir := c.config(id, nil).Dir
	if err := errors.Join(os.RemoveAll(dir), os.Rename(image, dir)); err != nil {
		c.t.Fatal(err)
	}
}

// TestOlderCopyIsRefusedHoweverOftenItIsStarted puts an older copy of a directory back and
// starts it again and again, as a supervisor or an operator does with a node that does not
// get ready. Each start raises the counter in the copy; when it is beyond the one that the
// others have noted, they must not let it in: what it had acknowledged since is gone.
func TestOlderCopyIsRefusedHoweverOftenItIsStarted(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.close(3)
	image := c.copyOf(3)
	c.open(3, nil)
	c.awaitReady(3)
	c.close(3)
	c.open(3, nil) // its start 3
	c.awaitReady(3)
	c.eventually("its start is noted", func() bool { return c.nodes[2].noted.of(3).Boot == 3 })
	c.close(2)
	c.add(1, 1, "precious") // nodes 1 and 3 have it
	c.close(3)
	c.close(1)
	c.putBack(3, image)
	c.open(2, nil)
	for boot := uint64(2); boot <= 5; boot++ {
		c.open(3, nil)
		c.eventually("it has come", func() bool {
			ref, ok := errors.AsType[*transport.RefusalError](peerOf(c.nodes[3], 2).LastError)
			refused := ok && ref.Code == transport.RefusedStale
			return refused || c.nodes[2].accept(c.nodes[3].identity()) == nil
		})
		if c.nodes[2].accept(c.nodes[3].identity()) == nil {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			answer, err := c.nodes[2].Query(ctx, 1, Linearizable, nil)
			cancel()
			t.Fatalf("start %d of the copy is listened to, and a linearizable read returns %q, %v",
				boot, answer, err)
		}
		c.close(3)
	}
}

// peerOf is what a node knows of its connection to another one.
func peerOf(n *Node, id raftyard.NodeID) transport.PeerStatus {
	peers := n.transport.Peers()
	i := slices.IndexFunc(peers, func(p transport.PeerStatus) bool { return p.Node == id })
	if i < 0 {
		return transport.PeerStatus{}
	}
	return peers[i]
}

// TestOlderCopyIsRefusedByWhoReadOfTheStart puts an older copy of a directory back whose next
// start is the last one of the directory. A node that was down then has read of that start in
// the registry only.
func TestOlderCopyIsRefusedByWhoReadOfTheStart(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.close(3)
	image := c.copyOf(3)
	c.close(2)
	c.open(3, nil) // its start 2
	c.awaitReady(3)
	c.close(3)
	c.open(2, nil)
	c.awaitReady(2)
	c.eventually("node 2 has noted the start", func() bool {
		return c.nodes[2].noted.of(3).Boot == 2
	})
	c.putBack(3, image)
	c.open(3, nil) // the copy's start 2
	copied := c.nodes[3].identity()
	c.eventually("both refuse it", func() bool {
		return !slices.ContainsFunc([]raftyard.NodeID{1, 2}, func(id raftyard.NodeID) bool {
			if c.nodes[id].accept(copied) == nil {
				t.Fatalf("node %d listens to the copy", id)
			}
			ref, ok := errors.AsType[*transport.RefusalError](peerOf(c.nodes[3], id).LastError)
			return !ok || ref.Code != transport.RefusedStale
		})
	})
}

// TestStartsThatNobodyHeardOf starts a node alone as often as there are starts that it keeps,
// and once more: the others, who know the one before, must let it in.
func TestStartsThatNobodyHeardOf(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	n := c.nodes[3]
	c.eventually("it has noted that its start is registered", func() bool {
		return n.noted.of(3).Process == raftyard.StoreID(n.presents.Process)
	})
	c.close(3)
	path := filepath.Join(c.config(3, nil).Dir, "IDENTITY")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b[:bytes.LastIndex(b, []byte("crc32c"))])
	text = strings.Replace(text, "boot    1\n", fmt.Sprintf("boot    %d\n", lineage.MaxStarts), 1)
	for boot := 2; boot <= lineage.MaxStarts; boot++ {
		text += fmt.Sprintf("start   %d %s\n", boot, n.world.newID())
	}
	sum := crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))
	text += fmt.Sprintf("crc32c  %08x\n", sum)
	if err = os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.open(3, nil)
	if boot := c.nodes[3].presents.Boot; boot != lineage.MaxStarts+1 {
		t.Fatalf("it is at start %d", boot)
	}
	c.awaitReady(3)
}

// TestTwoLinesOfStarts has two starts of one node come before either is noted, of which the
// later one does not show the other: when one is noted, the other must not be.
func TestTwoLinesOfStarts(t *testing.T) {
	store := raftyard.StoreID{7}
	start := func(boot uint64, process byte) lineage.Start {
		return lineage.Start{Boot: boot, Process: [16]byte{process}}
	}
	come := func(l lineage.Lineage) comer {
		return comer{knownStore{
			Node: 3, Store: store, Boot: l.Last().Boot, Process: l.Last().Process,
		}, l}
	}
	first := lineage.Lineage{Since: 1, Starts: []lineage.Start{start(4, 4)}}
	original := come(first.Then(start(5, 5), lineage.Start{}))
	copied := come(first.Then(start(5, 6), lineage.Start{}).Then(start(6, 7), lineage.Start{}))
	var k noted
	k.set(notes{list: []knownStore{come(first).knownStore}})
	k.meet(original)
	next := k.merge(k.load(), nil, 0)
	k.meet(copied) // before the next notes are durable
	k.set(next)
	if got := k.merge(k.load(), nil, 0).of(3); !got.is(original.knownStore) {
		t.Errorf("start %d is noted after start 5, which it does not show", got.Boot)
	}
	next = k.load()
	k.meet(copied)
	k.merge(next, nil, 0)
	restarted := come(original.shows.Then(start(6, 8), lineage.Start{}))
	k.meet(restarted)
	if got := k.merge(next, nil, 0).of(3); !got.is(restarted.knownStore) {
		t.Errorf("start %d is noted: one that cannot be is in the way of the right one", got.Boot)
	}
	own := []registry.Node{{ID: 3, Store: store, First: store, Boot: 6, Process: copied.Process}}
	if got := k.merge(k.load(), own, 1).of(3); !got.is(copied.knownStore) {
		t.Errorf("start %d is noted, and the registry has start 6", got.Boot)
	}
}

// TestCopyCameFirst: a node that knew nothing has noted a start of a copy, and hears of the
// registry then. It must refuse the copy from then on, and take the original.
func TestCopyCameFirst(t *testing.T) {
	c := newCluster(t, 1)
	c.awaitReady(1)
	n := c.nodes[1]
	start := func(boot uint64, process byte) lineage.Start {
		return lineage.Start{Boot: boot, Process: [16]byte{process}}
	}
	come := func(l lineage.Lineage) transport.Identity {
		return transport.Identity{
			Cluster: n.cluster, Node: 2, Store: [16]byte{2}, Boot: l.Last().Boot,
			Process: l.Last().Process, Lineage: l.Encode(),
		}
	}
	first := lineage.Lineage{Since: 1, Starts: []lineage.Start{start(4, 4)}}
	line := first.Then(start(5, 5), lineage.Start{})
	copied := come(first.Then(start(9, 9), lineage.Start{}))
	if ref := n.admitStart(copied, &registry.Node{}); ref != nil {
		t.Fatal(ref)
	}
	c.eventually("it is noted", func() bool { return n.noted.of(2).is(knownOf(copied)) })
	if err := n.accept(copied); err != nil {
		t.Fatalf("it is not taken for the node: %v", err)
	}
	res, err := n.command(t.Context(), registry.EncodeSetNode(registry.SetNode{
		Node:   registry.Node{ID: 2, Peer: "127.0.0.1:1", Store: registry.Store{2}, Boot: 5},
		Starts: line,
	}))
	if err != nil || res.Code != registry.Created {
		t.Fatalf("SetNode = %+v, %v", res, err)
	}
	c.eventually("the registry is known", func() bool {
		rec, _ := n.registry.Node(2)
		return rec.Boot == 5
	})
	if err := n.accept(copied); err == nil {
		t.Error("the copy is listened to")
	}
	original := come(line.Then(start(6, 6), lineage.Start{}))
	c.eventually("the original is listened to", func() bool { return n.accept(original) == nil })
	if err := n.accept(copied); err == nil {
		t.Error("the copy is listened to again")
	}
}

// TestOlderReleaseShowsNoStarts: of nodes of releases that keep no starts the number counts,
// and their first start with them need not show those before.
func TestOlderReleaseShowsNoStarts(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[1]
	peer := transport.Identity{
		Cluster: n.cluster, Node: 2, Store: [16]byte{2}, Boot: 4, Process: [16]byte{4},
	}
	n.noted.set(notes{list: []knownStore{knownOf(peer)}})
	restarted, older, clone, upgraded := peer, peer, peer, peer
	restarted.Boot, restarted.Process = 5, [16]byte{5}
	older.Boot, older.Process = 3, [16]byte{3}
	clone.Process = [16]byte{44}
	upgraded.Boot, upgraded.Process = 6, [16]byte{6}
	upgraded.Lineage = lineage.Lineage{Since: 6}.Then(
		lineage.Start{Boot: 6, Process: upgraded.Process}, lineage.Start{}).Encode()
	garbled := upgraded
	garbled.Boot = 7
	for _, s := range []struct {
		what string
		peer transport.Identity
		want transport.RefusalCode
	}{
		{"itself", peer, 0},
		{"a later start", restarted, 0},
		{"an earlier start", older, transport.RefusedStale},
		{"another process", clone, transport.RefusedStale},
		{"the first start that keeps starts", upgraded, 0},
		{"starts of another one", garbled, transport.RefusedMalformed},
	} {
		rec := registry.Node{}
		ref := n.admitStart(s.peer, &rec)
		if got := codeOf(ref); got != s.want {
			t.Errorf("%s: code %v, want %v", s.what, got, s.want)
		}
	}
}

func codeOf(ref *transport.RefusalError) transport.RefusalCode {
	if ref == nil {
		return 0
	}
	return ref.Code
}
