package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/transport"
)

// A disk may have lost what this node had acknowledged, and show no trace of it: the newest
// writes together with every note of them. Those to whom it was acknowledged remember. So a
// node that starts asks each node with which it shares a group, once, and compares. Until a
// node has answered, nothing is taken from it for the replicas that come from the disk; and
// these take no part in elections before all have answered, or half an election timeout has
// passed, since those who remember may be down. What is told later still counts.

const (
	// witnessPage bounds the groups in one answer.
	witnessPage = 1000
	// witnessTicks is after how many ticks those are looked for again that have not
	// answered in time.
	witnessTicks = 10
)

// witnesses are whom this node asks for what it has promised before its start.
type witnesses struct {
	// over: nobody waits for an answer any more.
	over atomic.Bool

	mu   sync.Mutex
	told map[raftyard.NodeID]bool
}

func (k *witnesses) hasTold(id raftyard.NodeID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.told[id]
}

func (k *witnesses) tells(id raftyard.NodeID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.told == nil {
		k.told = make(map[raftyard.NodeID]bool)
	}
	k.told[id] = true
}

// isHeld reports whether a replica must not hear a message of a node yet.
func (n *Node) isHeld(r *replica, from raftyard.NodeID, candidate bool) bool {
	switch {
	case !r.old || n.witnesses.over.Load():
		return false
	case candidate:
		return !n.isVouched(r)
	default:
		return !n.witnesses.hasTold(from)
	}
}

// isVouched reports whether a replica may take part in elections, as far as others can
// tell.
func (n *Node) isVouched(r *replica) bool {
	if !r.old || n.witnesses.over.Load() {
		return true
	}
	return !slices.ContainsFunc(r.view.Load().State.Descriptor.Members, func(m group.Member) bool {
		return m.Node != n.cfg.ID && !n.witnesses.hasTold(m.Node)
	})
}

// beginWitnesses says of all replicas that are there at the start that they come from the
// disk. At the first start of a directory there is nothing that could have been lost.
func (n *Node) beginWitnesses() {
	if n.store.Identity().Boot == 1 {
		n.witnesses.over.Store(true)
		return
	}
	for _, r := range n.allReplicas() {
		r.old = true
	}
}

// askWitnesses asks the others what they remember of the replicas that are there at the
// start, until all have answered.
func (n *Node) askWitnesses() {
	patience := n.world.now().Add(n.ticks(n.cfg.ElectionTicks) / 2)
	for silent := n.cohabitants(); len(silent) > 0; {
		silent = n.askSome(n.running, silent)
		pause := n.cfg.TickInterval
		if n.witnesses.over.Load() {
			pause = n.ticks(witnessTicks)
		} else if !n.world.now().Before(patience) {
			n.endWitnesses()
		}
		if len(silent) > 0 && !n.world.sleep(n.running, pause) {
			return
		}
	}
	n.endWitnesses()
}

// endWitnesses lets the replicas take part in everything.
func (n *Node) endWitnesses() {
	if !n.witnesses.over.Swap(true) {
		n.bootstrapElection()
	}
}

// cohabitants are the nodes with which this one shares a group, by id.
func (n *Node) cohabitants() []raftyard.NodeID {
	nodes := make(map[raftyard.NodeID]bool)
	for _, r := range n.allReplicas() {
		if !r.old {
			continue
		}
		for _, m := range r.view.Load().State.Descriptor.Members {
			if m.Node != n.cfg.ID {
				nodes[m.Node] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// askSome asks nodes that are connected, and returns those who have not answered.
func (n *Node) askSome(ctx context.Context, ids []raftyard.NodeID) []raftyard.NodeID {
	live := n.liveNodes()
	asks := make([]func(), 0, len(ids))
	for _, id := range ids {
		if live[id] {
			asks = append(asks, func() { n.askWitness(ctx, id) })
		}
	}
	n.world.all("ask what others remember", asks)
	return slices.DeleteFunc(ids, n.witnesses.hasTold)
}

// askWitness asks a node, page by page, and compares what it says.
func (n *Node) askWitness(ctx context.Context, id raftyard.NodeID) {
	ctx, cancel := n.world.withTimeout(ctx, askPatience)
	defer cancel()
	for from := uint64(0); ; {
		answer, err := n.ask(ctx, id, askRemembered, wire.AppendUvarint(nil, from))
		if errors.Is(err, ErrUnsupported) {
			n.witnesses.tells(id) // an earlier version remembers nothing
		}
		if err != nil {
			return // it is asked again
		}
		next, all, err := decodeTestimonies(answer)
		if err != nil {
			n.logger.Warn("what another node remembers", nodeAttr(id), errAttr(err))
			return
		}
		n.compareAll(all)
		if next <= from {
			n.witnesses.tells(id)
			return
		}
		from = next
	}
}

// A testimony is what a replica remembers of another.
type testimony struct {
	group       raftyard.GroupID
	incarnation raftyard.Incarnation
	of, by      raftyard.ReplicaID
	group.Witness
}

// compareAll has the workers compare what is told with their replicas.
func (n *Node) compareAll(all []testimony) {
	of := make(map[*worker][]testimony)
	for i := range all {
		t := &all[i]
		if r := n.replica(t.group); r != nil && r.incarnation == t.incarnation && r.id == t.of {
			of[r.worker] = append(of[r.worker], *t)
		}
	}
	for _, w := range n.workers {
		if list := of[w]; len(list) > 0 {
			w.box.control(func() { w.compare(list) })
		}
	}
}

func (w *worker) compare(list []testimony) {
	for i := range list {
		t := &list[i]
		r := w.replicas[t.group]
		if r == nil || r.id != t.of || w.node.waitsToFound(r) ||
			mutant.On(mutant.WitnessIgnored) {
			continue
		}
		w.guard(r, "compare it with what others remember", func() {
			if err := r.raft.CheckWitness(t.by, t.Witness); err != nil {
				w.node.beginnings.deceived.Store(true)
				w.node.condemn(r, err, nil)
			}
		})
	}
}

// serveRemembered tells another node what this one's replicas remember of its own.
func (n *Node) serveRemembered(
	ctx context.Context, from *transport.Identity, r *wire.Reader,
) ([]byte, error) {
	least := raftyard.GroupID(r.Uvarint())
	if err := r.Close(); err != nil {
		return nil, err
	}
	next, all, err := n.remembered(ctx, from, least, witnessPage)
	if err != nil {
		return nil, err
	}
	return encodeTestimonies(next, all), nil
}

// remembered returns what replicas of groups from a given one on remember of a node's, and
// with which group the next page begins; zero: there is none.
func (n *Node) remembered(
	ctx context.Context, from *transport.Identity, least raftyard.GroupID, limit int,
) (next raftyard.GroupID, all []testimony, err error) {
	rs := n.allReplicas()
	rs = slices.DeleteFunc(rs, func(r *replica) bool {
		return r.group < least || !r.serving() || r.memberIn(from) == 0
	})
	slices.SortFunc(rs, byGroup)
	if len(rs) > limit {
		next, rs = rs[limit].group, rs[:limit]
	}
	all, err = n.recall(ctx, from, rs)
	return next, all, err
}

// memberIn returns the member of the group that a node has in its directory, or zero.
func (r *replica) memberIn(from *transport.Identity) raftyard.ReplicaID {
	v := r.view.Load()
	m, ok := v.State.Descriptor.MemberOn(from.Node)
	if !ok || m.ID == r.id || !v.isFrom(m.ID, raftyard.StoreID(from.Store)) {
		return 0
	}
	return m.ID
}

// recall collects what replicas remember of a node's.
func (n *Node) recall(
	ctx context.Context, from *transport.Identity, rs []*replica,
) ([]testimony, error) {
	of := make(map[*worker][]*replica)
	for _, r := range rs {
		of[r.worker] = append(of[r.worker], r)
	}
	answers := make(chan []testimony, len(n.workers))
	asked := 0
	for _, w := range n.workers {
		list := of[w]
		if len(list) > 0 && w.box.control(func() { answers <- w.recall(from, list) }) {
			asked++
		}
	}
	var all []testimony
	for range asked {
		some, why := await(n.world, answers, n.stopped, ctx.Done())
		switch why {
		case fromFirst:
			return nil, ErrClosed
		case fromSecond:
			return nil, context.Cause(ctx)
		case fromValues:
		}
		all = append(all, some...)
	}
	return all, nil
}

func (w *worker) recall(from *transport.Identity, rs []*replica) []testimony {
	all := make([]testimony, 0, len(rs))
	for _, r := range rs {
		w.guard(r, "tell what it remembers", func() {
			id := r.memberIn(from)
			if know := r.raft.Witness(id); id != 0 && !know.IsZero() {
				all = append(all, testimony{
					group: r.group, incarnation: r.incarnation, of: id, by: r.id, Witness: know,
				})
			}
		})
	}
	return all
}

// encodeTestimonies makes an answer: with which group the next page begins, zero if there
// is none, and what is remembered.
func encodeTestimonies(next raftyard.GroupID, all []testimony) []byte {
	b := wire.AppendUvarint(nil, uint64(next))
	b = wire.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		t := &all[i]
		b = wire.AppendUvarint(b, uint64(t.group))
		b = wire.AppendID(b, t.incarnation)
		b = wire.AppendUvarint(b, uint64(t.of))
		b = wire.AppendUvarint(b, uint64(t.by))
		b = t.Append(b)
	}
	return b
}

func decodeTestimonies(b []byte) (next uint64, all []testimony, err error) {
	r := wire.NewReader(b)
	next = r.Uvarint()
	for range r.Count(16 + 10) {
		all = append(all, testimony{
			group: raftyard.GroupID(r.Uvarint()), incarnation: r.ID(),
			of: raftyard.ReplicaID(r.Uvarint()), by: raftyard.ReplicaID(r.Uvarint()),
			Witness: group.ReadWitness(r),
		})
	}
	return next, all, r.Close()
}
