package node

import (
	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A leader that is to go offers its leadership to another. That one may not get it: it may
// reach the leader and nobody else. Each offer stops proposals for about an election
// timeout, so that whoever has not taken one is left alone for longer and longer.

// maxOfferPause bounds how long a member is left alone, in election timeouts.
const maxOfferPause = 32

// offers are what a replica remembers of those it has made, also while others lead.
type offers struct {
	to       raftyard.ReplicaID // the one that is open, or zero
	shed     bool               // that one is because of the disk
	declined map[raftyard.ReplicaID]*pause
}

// A pause is how long a member is left alone.
type pause struct {
	timeouts int // how long in the whole
	left     int // ticks of it that are left
}

// made takes note of an offer, and whether it is because of the disk.
func (o *offers) made(to raftyard.ReplicaID, shed bool) { o.to, o.shed = to, shed }

// led hears who leads now, so that the open offer may have ended. It reports whether one
// that is because of the disk was taken.
func (o *offers) led(leader, self raftyard.ReplicaID, timeout int) (shed bool) {
	switch {
	case o.to == 0 || leader == 0:
	case leader == o.to:
		delete(o.declined, leader)
		o.to = 0
		return o.shed
	case leader == self:
		o.decline(timeout)
	default:
		o.to = 0 // somebody else was faster
	}
	return false
}

// decline ends the open offer: it came to nothing.
func (o *offers) decline(timeout int) {
	p := o.declined[o.to]
	if p == nil {
		if o.declined == nil {
			o.declined = make(map[raftyard.ReplicaID]*pause)
		}
		p = new(pause)
		o.declined[o.to] = p
	}
	p.timeouts = min(max(2*p.timeouts, 2), maxOfferPause)
	p.left = p.timeouts * timeout
	o.to = 0
}

// tick lets time go on. What is long past is forgotten.
func (o *offers) tick(timeout int) {
	for id, p := range o.declined {
		if p.left--; p.left < -2*maxOfferPause*timeout {
			delete(o.declined, id)
		}
	}
}

// mark says in the progress who is to be left alone.
func (o *offers) mark(progress map[raftyard.ReplicaID]group.Progress) {
	for id, p := range o.declined {
		if q, ok := progress[id]; ok && p.left > 0 {
			q.Declined = true
			progress[id] = q
		}
	}
}

// tickOffers ends an offer that raft has given up while this replica went on leading.
func (w *worker) tickOffers(r *replica) {
	o, timeout := &r.steering.offers, w.node.cfg.ElectionTicks
	o.tick(timeout)
	if o.to == 0 || r.leader.Role != group.Leader {
		return
	}
	if st := r.raft.Status(); st.Role == group.Leader && st.Transferee == 0 {
		o.decline(timeout)
	}
}
