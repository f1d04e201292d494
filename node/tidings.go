package node

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// When entries are committed, raft has a leader tell its followers at once, with an append of
// no entries. The next entries tell the same, and under load they come soon: when the clients
// have been answered that the last ones are from. So the append waits for those a little, and
// stays out if they come. To be told costs a follower as much as an entry, but for the disk.
//
//	committed ──▶ held ──┬── entries to the same member ──▶ dropped: they say it
//	                     ├── tidingsDelay is over ────────▶ sent
//	                     └── a member wants to read ──────▶ sent
//
// To raft it is a message that was slow, or is lost.

// tidingsDelay is for how long a leader keeps to itself what is committed, at most.
const tidingsDelay = 2 * time.Millisecond

// tidings are what a leader keeps to itself, by its members. Only the worker touches them.
type tidings struct {
	kept   []transport.Envelope
	listed bool // the replica stands among those of its worker that keep something
}

// keepTidings reports whether a message need not be sent now, since it only tells what is
// committed. A message that tells more takes the place of one that was kept.
func (w *worker) keepTidings(r *replica, env *transport.Envelope) bool {
	if env.Message.GetType() != raftpb.MsgApp {
		return false
	}
	r.tidings.drop(env.To.Replica)
	if !onlyTells(env.Message) || r.machine.logOnly.Load() {
		return false // of a leader without a state machine, followers answer the clients
	}
	r.tidings.kept = append(r.tidings.kept, *env)
	if r.tidings.listed {
		return true
	}
	r.tidings.listed = true
	w.keeping = append(w.keeping, r)
	if len(w.keeping) == 1 { // otherwise they are about to be sent
		select {
		case w.keeps <- struct{}{}:
		default:
		}
	}
	return true
}

// onlyTells reports whether an append only tells that all is committed which its receiver is
// believed to have.
func onlyTells(m *raftpb.Message) bool {
	return len(m.GetEntries()) == 0 && m.GetCommit() == m.GetIndex()
}

// drop drops what is kept for a member.
func (t *tidings) drop(to raftyard.ReplicaID) {
	t.kept = slices.DeleteFunc(t.kept, func(env transport.Envelope) bool {
		return env.To.Replica == to
	})
}

// sendTidings sends all that the replicas of a worker keep to themselves.
func (w *worker) sendTidings() {
	for i, r := range w.keeping {
		w.keeping[i] = nil
		r.tidings.listed = false
		w.shield(r, "tell what is committed", func() { w.tellAll(r) })
	}
	w.keeping = w.keeping[:0]
}

// tellAll sends what a replica keeps to itself.
func (w *worker) tellAll(r *replica) {
	for i := range r.tidings.kept {
		w.outgoing.add(r.tidings.kept[i])
	}
	clear(r.tidings.kept)
	r.tidings.kept = r.tidings.kept[:0]
}

// watchTidings has what a worker keeps sent in time, for as long as the node goes on.
func (w *worker) watchTidings() {
	n := w.node
	for {
		if _, from := await(n.world, w.keeps, n.running.Done(), nil); from != fromValues {
			return
		}
		if !n.world.sleep(n.running, tidingsDelay) {
			return
		}
		w.box.control(w.sendTidings)
	}
}
