package node

import (
	"bytes"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/group"
)

// TestUnsavedEntriesAreBounded: what leaders send to a node whose disk hangs is taken up to a
// bound of all groups together; what has none yet gets a little more.
func TestUnsavedEntriesAreBounded(t *testing.T) {
	const most = 32 << 20
	w := &worker{node: &Node{cfg: Config{Bounds: Bounds{UnsavedBytes: most}}}}
	const size = 1 << 20
	data := bytes.Repeat([]byte("e"), size-entryOverhead)
	appends := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), Entries: []*raftpb.Entry{{Data: data}},
	}
	var rs []*replica
	taken := 0
	for range 1000 { // each as much as may be in flight to one follower
		r := &replica{}
		rs = append(rs, r)
		for range 8 {
			if w.takesEntries(r, appends) {
				taken++
			}
		}
	}
	if want := 2 * most / size; taken != want || w.node.unsaved.Load() != 2*most {
		t.Errorf("%d entries of a MiB are taken, want %d; %d bytes are counted",
			taken, want, w.node.unsaved.Load())
	}
	if refused := w.node.metrics.refused[unsavedLimit].Load(); refused != uint64(8000-taken) {
		t.Errorf("%d are counted as refused, want %d", refused, 8000-taken)
	}
	heartbeat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum()}
	if !w.takesEntries(rs[0], heartbeat) {
		t.Error("a heartbeat is not taken")
	}
	for _, r := range rs[:5] {
		r.unsaved.taken()
		w.node.unsaved.Add(-r.unsaved.saved())
	}
	if !w.takesEntries(rs[0], appends) {
		t.Error("nothing is taken though much is durable")
	}
	for _, r := range rs {
		w.node.unsaved.Add(-r.unsaved.drop())
	}
	if left := w.node.unsaved.Load(); left != 0 {
		t.Errorf("%d bytes are counted in the end", left)
	}
}

// TestBacklogsAreBounded: replicas whose state machines are slow together stop to hand out
// commands, and to take proposals before that; one that is not behind goes on.
func TestBacklogsAreBounded(t *testing.T) {
	const most = 128 << 20
	a := newAppliers(nil, most, nil, nil)
	const size = 4 << 20
	handedOut := 0
	for range 100 {
		r := &replica{machine: &machine{claimed: true}}
		for range 40 {
			if a.room(r) {
				a.apply(r, &group.Apply{Bytes: size})
				handedOut += size
			}
		}
	}
	if handedOut > 2*most || handedOut < most {
		t.Errorf("%d MiB are handed out", handedOut>>20)
	}
	if int64(handedOut) != a.backlog.Load() {
		t.Errorf("%d bytes are counted of %d", a.backlog.Load(), handedOut)
	}
	a.backlog.Store(most)
	idle := &replica{machine: &machine{}}
	if !a.room(idle) || a.behind(idle) {
		t.Error("a replica that is not behind is held up by others")
	}
	idle.machine.addBacklog(size)
	if a.room(idle) || !a.behind(idle) {
		t.Error("a replica that is behind goes on though all are")
	}
}
