package node

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/wire"
)

// A founding node makes its replica of the system group by itself. If its directory is
// wiped it does so again, and has the same replica, which has forgotten what it promised.
// In a cluster that runs everybody knows the directory that it had. In the first moments
// nobody may: with a founder that was down all the time, the wiped one would found the
// cluster a second time. So a founder takes no part in the system group before more than
// half of the other founders, of those who vote, have noted its directory durably: whoever
// is asked after a wipe by as many is asked by one that knows.
//
// A founder that comes when not so many are there any more registers itself as late: its
// replica then counts as lost, whatever directory it was in, and is replaced. So the first
// directory of a founder that the registry has is one that was known.
//
// A founder that was wiped before the cluster is founded comes with another directory than
// the others have noted. They cannot know it, but it can know them: those who wait talk to
// it, so that they ask it. It is replaced when the cluster is there.
//
// Of two founders only one votes, and each of them waits for the other. The only founder of
// a cluster listens whether somebody knows it already: see sole.go.

const (
	// foundingEvery is how often a founder asks whether it is known.
	foundingEvery = 20 * time.Millisecond
	// foundingPatience is after how long the log says for whom it waits.
	foundingPatience = 3 * time.Second
	// lateAfter is after how long a founder registers itself as late that waits for others,
	// none of whom has come meanwhile.
	lateAfter = 10 * time.Second
)

// founding is whether this node's replica of the system group waits to be known.
type founding struct {
	waits   atomic.Bool
	callers callers

	// Of housekeeping alone.
	came []raftyard.NodeID // other founders that have been noted, in the order they came
	last time.Time         // when the last of them came
}

// waitsToFound reports whether a replica must not take part in its group yet.
func (n *Node) waitsToFound(r *replica) bool {
	return r.group == raftyard.SystemGroup && n.founding.waits.Load()
}

// isLate reports whether this founder has waited for long, and none of the others has come
// meanwhile. Where nodes are started one by one, all become known when the last one has
// come, however long that was: those who lead first must not hear that another is late.
func (n *Node) isLate() bool {
	now, met := n.world.now(), n.noted.load()
	f := &n.founding
	if f.last.IsZero() {
		f.last = now
	}
	for _, id := range n.otherFounders() {
		// Noted is also who has called and has not been reached yet. Of three founders none
		// is known, and leads, whom this node has not noted before.
		if _, ok := met.find(id); ok && !slices.Contains(f.came, id) {
			f.came, f.last = append(f.came, id), now
		}
	}
	return now.Sub(f.last) > lateAfter
}

// beginFounding looks at the replica of the system group that was opened: one that has
// only the beginning waits, unless it is noted that it may take part.
func (n *Node) beginFounding(r *replica) {
	self := n.noted.of(n.cfg.ID)
	_, last := r.log.Bounds()
	n.founding.waits.Store(r.meta.State.Index == 1 && last == 1 &&
		(self.Store != n.ownStore() || self.First != n.ownStore()) &&
		!mutant.On(mutant.WipedVotes))
}

// otherFounders are the other nodes that vote in the system group from its beginning; for
// the only one that does, of two, the one that does not: it knows, too, who was there
// before.
func (n *Node) otherFounders() []raftyard.NodeID {
	var voters, all []raftyard.NodeID
	d := n.systemDescriptor()
	for _, m := range d.Members {
		if m.Node == n.cfg.ID {
			continue
		}
		all = append(all, m.Node)
		if m.Role == group.Voter {
			voters = append(voters, m.Node)
		}
	}
	if len(voters) == 0 {
		return all
	}
	return voters
}

// becomeKnown asks the other founders until this node may take part.
func (n *Node) becomeKnown() {
	if len(n.otherFounders()) == 0 {
		n.foundAlone()
		return
	}
	began, said := n.world.now(), false
	for n.founding.waits.Load() && n.running.Err() == nil {
		ok, missing := n.isKnown(n.running)
		if ok {
			n.takePart()
			return
		}
		if !said && n.world.now().Sub(began) > foundingPatience {
			said = true
			n.logger.Warn("this node waits for the others that found the cluster",
				stepAttr(fmt.Sprint(missing)))
		}
		if !n.world.sleep(n.running, foundingEvery) {
			return
		}
	}
}

// takePart ends the wait: this node's directory is the one that founds the cluster.
func (n *Node) takePart() {
	n.noted.meet(comer{knownOf(n.presents), n.store.Identity().Starts})
	n.lifecycle.poke()
	n.founding.waits.Store(false)
	n.bootstrapElection()
}

// isKnown reports whether this node's directory is noted by enough founders, or the
// registry has it as the first one, which it has of nobody who was not known. If it is
// not known, missing are those who have not said so.
func (n *Node) isKnown(ctx context.Context) (ok bool, missing []raftyard.NodeID) {
	others, own := n.otherFounders(), n.ownStore().String()
	noted := 0
	for i, a := range n.whoKnows(ctx, others) {
		switch {
		case a.First == own && a.Registered:
			return true, nil
		case a.First == own:
			noted++
		default:
			missing = append(missing, others[i])
		}
	}
	return noted > len(others)/2, missing
}

// whoKnows asks nodes what they know of this one.
func (n *Node) whoKnows(ctx context.Context, ids []raftyard.NodeID) []knownAnswer {
	return askAll[knownAnswer](ctx, n, ids, poll{
		name: "ask who knows this node", kind: askKnown,
		body: wire.AppendUvarint(nil, uint64(n.cfg.ID)), patience: time.Second,
	})
}

// knownAnswer is what a node knows of another.
type knownAnswer struct {
	First      string `json:"first"` // data directory; empty: none
	Registered bool   `json:"registered"`
}

// serveKnown tells what this node has noted of another durably, or the registry says.
func (n *Node) serveKnown(id raftyard.NodeID) knownAnswer {
	if rec, _ := n.registry.Node(id); !rec.First.IsZero() {
		return knownAnswer{First: rec.First.String(), Registered: true}
	}
	if k := n.noted.of(id); !k.First.IsZero() {
		return knownAnswer{First: k.First.String()}
	}
	return knownAnswer{}
}

// replicaStore is the directory to which this node's replicas are bound.
func (n *Node) replicaStore() raftyard.StoreID {
	if mutant.On(mutant.WipedVotes) || mutant.On(mutant.LostMemberVotes) {
		return raftyard.StoreID{}
	}
	return n.ownStore()
}
