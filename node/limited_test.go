package node

import (
	"bytes"
	"errors"
	"testing"

	"github.com/raftyard/raftyard/group"
)

// limitedNode is a cluster of one with small bounds, and the replica of its group.
func limitedNode(t *testing.T) (*Node, *replica) {
	t.Helper()
	c := newCluster(t, 1)
	c.close(1)
	c.bounds = Bounds{
		PeerRequests: 71, PeerRequestBytes: minBound + 1, PeerQueueBytes: minBound + 2,
		WorkerQueueBytes: minBound + 3, UnsavedBytes: minBound + 4,
		ApplyBacklogBytes: minBound + 5,
	}
	c.open(1, nil)
	c.awaitReady(1)
	c.create(7, 1)
	c.add(1, 7, "first")
	return c.nodes[1], c.nodes[1].replica(7)
}

// TestLimitsAreShown: each limit is what was configured, and what is used of those of single
// nodes is what there is.
func TestLimitsAreShown(t *testing.T) {
	n, _ := limitedNode(t)
	l := n.Metrics().Limits
	for name, tt := range map[string]struct {
		got  Limited
		want int64
	}{
		"PeerRequests":      {l.PeerRequests, 71},
		"PeerRequestBytes":  {l.PeerRequestBytes, minBound + 1},
		"PeerQueueBytes":    {l.PeerQueueBytes, minBound + 2},
		"WorkerQueueBytes":  {l.WorkerQueueBytes, minBound + 3},
		"UnsavedBytes":      {l.UnsavedBytes, minBound + 4},
		"ApplyBacklogBytes": {l.ApplyBacklogBytes, minBound + 5},
		"ProposalBytes":     {l.ProposalBytes, 16 << 20},
		"EntryCacheBytes":   {l.EntryCacheBytes, 64 << 20},
		"SnapshotSends":     {l.SnapshotSends, 4},
		"SnapshotReceives":  {l.SnapshotReceives, 4},
	} {
		if tt.got.Most != tt.want || tt.got.Refused != 0 {
			t.Errorf("%s is %+v, want %d at most and nobody refused", name, tt.got, tt.want)
		}
	}
	if l.EntryCacheBytes.Used <= 0 || l.LogMemtables.Used <= 0 ||
		l.LogMemtables.Used > l.LogMemtables.Most {
		t.Errorf("cache %+v, memtables %+v: nothing is used of them, or too much",
			l.EntryCacheBytes, l.LogMemtables)
	}
}

// TestQueuesAreCounted: what waits for a worker, and in a group, is shown while it waits; what
// is too much is refused, without any effect, and counted; in the end nothing waits.
func TestQueuesAreCounted(t *testing.T) {
	n, r := limitedNode(t)
	const size = 900 << 10
	word := bytes.Repeat([]byte("w"), size)
	w := r.worker
	var calls []*call
	propose := func() (*call, proposal) {
		c := newCall(r)
		return c, proposal{r: r, p: group.Proposal{ID: n.newMessageID(), Data: word, Token: c}}
	}
	took := make(chan struct{})
	var queued, waiting, over Limited
	if !w.box.control(func() { // the worker does nothing else meanwhile
		defer close(took)
		for range 3 {
			c, p := propose()
			if err := c.propose(p.p); err != nil {
				t.Errorf("a proposal that there is room for: %v", err)
			}
			calls = append(calls, c)
		}
		queued = n.Metrics().Limits.WorkerQueueBytes
		for err := error(nil); err == nil; {
			c, p := propose()
			if err = c.propose(p.p); err == nil {
				calls = append(calls, c)
			} else if !errors.Is(err, ErrOverloaded) {
				t.Errorf("a proposal too many = %v", err)
			}
		}
		over = n.Metrics().Limits.WorkerQueueBytes

		for range 20 { // more than may wait in a group
			c, p := propose()
			calls = append(calls, c)
			w.propose(&p)
		}
		w.countProposals(r)
		waiting = n.Metrics().Limits.ProposalBytes
	}) {
		t.Fatal("the worker has stopped")
	}
	<-took
	if queued.Used != 3*size || queued.Refused != 0 {
		t.Errorf("three proposals that wait for a worker are %+v", queued)
	}
	if over.Refused != 1 || over.Used > over.Most || over.Used < over.Most-size {
		t.Errorf("when the queue of a worker is full it is %+v", over)
	}
	if waiting.Refused != 2 || waiting.Used > waiting.Most || waiting.Used < waiting.Most-size {
		t.Errorf("when a group has as many proposals as it may it is %+v", waiting)
	}
	wantEnds(t, calls)
	if l := n.Metrics().Limits; l.ProposalBytes.Used != 0 || l.WorkerQueueBytes.Used != 0 {
		t.Errorf("in the end %+v and %+v", l.ProposalBytes, l.WorkerQueueBytes)
	}
}

// wantEnds waits until every call has ended, and wants that those which were refused say so.
func wantEnds(t *testing.T, calls []*call) {
	t.Helper()
	done := 0
	for _, c := range calls {
		if _, err := c.waitFor(t.Context(), 0); err == nil {
			done++
		} else if !errors.Is(err, ErrOverloaded) || !NotApplied(err) {
			t.Errorf("a proposal has ended with %v", err)
		}
	}
	if done < 18 {
		t.Errorf("%d proposals are done, want those that waited in the group at least", done)
	}
}

// TestStoppedReplicaHasNoProposals: what waits in a replica that is stopped, which raft is not
// asked any more, is not counted for as long as the node lives.
func TestStoppedReplicaHasNoProposals(t *testing.T) {
	n, r := limitedNode(t)
	w := r.worker
	took := make(chan struct{})
	var waiting int64
	var sent *call
	if !w.box.control(func() {
		defer close(took)
		sent = newCall(r)
		w.propose(&proposal{r: r, p: group.Proposal{
			ID: n.newMessageID(), Data: []byte("word"), Token: sent,
		}})
		w.countProposals(r)
		waiting = n.Metrics().Limits.ProposalBytes.Used
		n.stopReplica(r, errors.New("a test"))
	}) {
		t.Fatal("the worker has stopped")
	}
	<-took
	if waiting == 0 {
		t.Error("a proposal that waits is not counted")
	}
	if _, err := sent.waitFor(t.Context(), 0); err == nil {
		t.Error("a proposal to a replica that is stopped is done")
	}
	retired := make(chan struct{}) // in a round after that in which the replica is retired
	if !w.box.control(func() {
		w.box.control(func() { w.box.control(func() { close(retired) }) })
	}) {
		t.Fatal("the worker has stopped")
	}
	<-retired
	if l := n.Metrics().Limits.ProposalBytes; l.Used != 0 {
		t.Errorf("of a replica that is stopped %d bytes wait", l.Used)
	}
}
