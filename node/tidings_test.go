package node

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// TestTidings: what only tells a member that all is committed is kept, until something tells
// that member more, or it is time.
func TestTidings(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.add(1, 1, "leads")
	r := c.nodes[1].replica(1)
	w := r.worker
	message := func(
		to raftyard.ReplicaID, commit uint64, entries ...*raftpb.Entry,
	) *transport.Envelope {
		return &transport.Envelope{
			To: transport.Endpoint{Node: raftyard.NodeID(to), Replica: to},
			Message: &raftpb.Message{
				Type:  raftpb.MsgApp.Enum(),
				Index: new(uint64(7)), Commit: &commit, Entries: entries,
			},
		}
	}
	kept := func() (to []raftyard.ReplicaID) {
		for _, env := range r.tidings.kept {
			to = append(to, env.To.Replica)
		}
		return to
	}
	onWorker(r, func() {
		tells, says := message(2, 7), message(2, 7, &raftpb.Entry{Index: new(uint64(8))})
		for _, env := range []*transport.Envelope{tells, message(3, 7), tells} {
			if !w.keepTidings(r, env) {
				t.Error("what only tells what is committed leaves at once")
			}
		}
		if got := kept(); len(got) != 2 {
			t.Errorf("kept for members %v, want one message for each of 2 and 3", got)
		}
		if len(w.keeping) != 1 {
			t.Errorf("%d replicas keep something, want one", len(w.keeping))
		}
		if w.keepTidings(r, says) {
			t.Error("entries are kept")
		}
		if got := kept(); len(got) != 1 || got[0] != 3 {
			t.Errorf("kept for members %v after entries for 2, want 3", got)
		}
		if w.keepTidings(r, message(2, 6)) {
			t.Error("an append that asks for what lies behind the commit index is kept")
		}
		w.sendTidings()
		if len(w.outgoing.boxes) != 1 || w.outgoing.boxes[0].to != 3 || w.outgoing.waiting != 1 {
			t.Errorf("when it is time, %d messages leave, want that for 3", w.outgoing.waiting)
		}
		if len(kept()) != 0 || len(w.keeping) != 0 || r.tidings.listed {
			t.Error("what was sent is kept")
		}
		w.outgoing = outgoing{} // nobody is there who could take it
		w.keepTidings(r, tells)
	})
	c.eventually("what is kept leaves by itself", func() bool {
		var left int
		onWorker(r, func() { left = len(r.tidings.kept) })
		return left == 0
	})
}
