package node

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// reconcileEvery is how often the registry is compared with what is here though nothing has
// told of a change.
const reconcileEvery = time.Second

// lifecycle makes and destroys replicas: on a first message, as the registry
// says, or on proof that a replica is removed. One goroutine does it, in rounds;
// the writes of a round share a sync.
type lifecycle struct {
	node *Node
	wake chan struct{}
	stop chan struct{}
	proc process

	started bool // only the goroutine that opens and closes the node looks at it

	version uint64            // of the registry, already compared; for the goroutine of the rounds
	peers   []raftyard.NodeID // that are to be connected, by id; of the rounds alone

	mu       sync.Mutex
	creates  map[raftyard.GroupID]creation
	destroys map[*replica]remains // what the tombstone shall know
	reopens  map[*replica]*reopening
	forgets  map[raftyard.GroupID]bool
	opening  map[raftyard.GroupID]bool // see openBeside
	made     chan struct{}             // closed after each round
	begun    uint64                    // rounds that have begun
	ended    uint64                    // rounds that are done
	fresh    bool                      // the registry is as new as this start
	swept    bool                      // and there has been a round since
}

// creation is a replica to be made.
type creation struct {
	group       raftyard.GroupID
	incarnation raftyard.Incarnation
	id          raftyard.ReplicaID
	genesis     *group.Descriptor // the group's founding; nil for one that others fill
	vouched     holding           // what its sender says, for one that others fill
	begun       bool              // the founding has been before, and is lost
}

func newLifecycle(n *Node) *lifecycle {
	return &lifecycle{
		node: n,
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		creates:  make(map[raftyard.GroupID]creation),
		destroys: make(map[*replica]remains),
		reopens:  make(map[*replica]*reopening),
		opening:  make(map[raftyard.GroupID]bool),
		made:     make(chan struct{}),
	}
}

// start lets the rounds begin.
func (l *lifecycle) start() {
	l.started = true
	l.proc = l.node.world.spawn("lifecycle", l.run)
}

func (l *lifecycle) run() {
	for {
		if _, from := await(l.node.world, l.wake, l.stop, nil); from != fromValues {
			return
		}
		l.round()
	}
}

func (l *lifecycle) close() {
	if !l.started {
		return
	}
	close(l.stop)
	l.proc.wait()
}

// pokeNowAndThen has rounds run though nothing asks for one.
func (l *lifecycle) pokeNowAndThen() {
	l.node.world.every(l.node.running, reconcileEvery, l.poke)
}

// poke has a round run soon.
func (l *lifecycle) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next returns a channel that is closed after the next round.
func (l *lifecycle) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// settle returns when a round is over that has begun after the call, and so knows
// everything that the caller knew; or when ctx ends.
func (l *lifecycle) settle(ctx context.Context) error {
	l.mu.Lock()
	target := l.begun + 1
	for l.ended < target {
		made := l.made
		l.mu.Unlock()
		l.poke()
		if _, from := await[struct{}](l.node.world, nil, made, ctx.Done()); from == fromSecond {
			return context.Cause(ctx)
		}
		l.mu.Lock()
	}
	l.mu.Unlock()
	return nil
}

// exists reports whether this incarnation of a group is there, as far as this node
// knows. Before the node has read the registry it cannot tell: what it remembers may be
// from before the group was deleted. Of the system group the registry knows nothing: its
// incarnation follows from the founding nodes.
func (l *lifecycle) exists(g raftyard.GroupID, in raftyard.Incarnation) bool {
	if g == raftyard.SystemGroup {
		return in == l.node.systemIncarnation()
	}
	rec, ok := l.node.registry.Group(g)
	return l.isFresh() && ok && !rec.Deleted && rec.Incarnation == in
}

// wanted hears a message for a replica that is not here, and returns the claim for it if it
// may come to be: the registry must know the group, and the replica must not
// have been here before. Whether it is to be here its sender is asked.
func (l *lifecycle) wanted(env *transport.Envelope) *claim {
	if env.Group == raftyard.SystemGroup && env.Incarnation != l.node.systemIncarnation() {
		l.node.otherFounding(env.From.Node)
	}
	if !l.exists(env.Group, env.Incarnation) || reservedID(env.To.Replica) ||
		l.node.foreignStore(l.node.cfg.ID, l.node.ownStore()) {
		return nil
	}
	if l.node.hasNoRoomFor(env.Group) {
		return nil // the sender comes again
	}
	if st, ok := l.node.store.Replica(env.Group); ok && st.Incarnation == env.Incarnation {
		switch {
		case st.Tombstone != nil && env.To.Replica < st.Tombstone.NextReplica:
			return nil
		case st.Tombstone == nil && env.To.Replica <= st.ID:
			return nil // damaged or stopped, or the sender knows less than we do
		}
	}
	return l.node.claims.add(env)
}

// create has a replica made that somebody vouches for.
func (l *lifecycle) create(c creation) {
	l.mu.Lock()
	if _, queued := l.creates[c.group]; !queued {
		l.creates[c.group] = c
	}
	l.mu.Unlock()
	l.poke()
}

// removed hears from a replica that it has applied its own removal.
func (l *lifecycle) removed(r *replica) {
	l.destroy(r, r.remainsOf(r.meta.State))
}

// destroy has a replica destroyed, of which there is proof that it is removed, or that
// its group is deleted. What is known of its end best goes into the tombstone.
func (l *lifecycle) destroy(r *replica, last remains) {
	l.toDestroy(r, last)
	l.poke()
}

// toDestroy is destroy in whatever round comes next.
func (l *lifecycle) toDestroy(r *replica, last remains) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.destroys[r]
	if !ok || known.Epoch < last.Epoch || known.Epoch == last.Epoch && known.Index == 0 {
		last.Deleted = last.Deleted || known.Deleted
		l.destroys[r] = last
	} else if last.Deleted {
		known.Deleted = true
		l.destroys[r] = known
	}
}

// round does what has gathered.
func (l *lifecycle) round() {
	l.node.noteStores()
	l.connect()
	if l.node.refreshDirectories() {
		l.version = 0 // groups may have waited for this node's own to be registered
	}
	l.mu.Lock()
	l.begun++
	fresh := l.fresh
	l.mu.Unlock()
	if fresh {
		l.compare()
	} else {
		l.version = 0 // a replica that opens meanwhile is not compared by itself
	}
	l.mu.Lock()
	creates, destroys, forgets := l.creates, l.destroys, l.forgets
	reopens := l.reopens
	l.forgets = nil
	l.creates = make(map[raftyard.GroupID]creation)
	l.destroys = make(map[*replica]remains)
	l.reopens = make(map[*replica]*reopening)
	l.mu.Unlock()

	l.destroyAll(destroys)
	l.reopenAll(reopens)
	l.goOnPurging()
	l.forgetAll(forgets)
	l.buryBegun(creates)
	l.createAll(creates)

	l.mu.Lock()
	l.ended, l.swept = l.begun, fresh && l.fresh
	close(l.made)
	l.made = make(chan struct{})
	l.mu.Unlock()
}

// connect makes connections to all nodes stand that the registry has, and gives up those
// to nodes that it has no longer.
func (l *lifecycle) connect() {
	var now []raftyard.NodeID
	for _, rec := range l.node.registry.Nodes() {
		if rec.ID == l.node.cfg.ID {
			continue
		}
		now = append(now, rec.ID)
		if _, there := slices.BinarySearch(l.peers, rec.ID); !there {
			l.node.transport.Connect(rec.ID)
		}
	}
	for _, id := range l.peers {
		if _, stays := slices.BinarySearch(now, id); !stays {
			l.node.transport.Disconnect(id)
		}
	}
	l.peers = now
}

// compare looks at what the registry has changed since the last time: groups to
// be founded here, groups that are deleted, and memberships that are wanted.
func (l *lifecycle) compare() {
	anew := l.version == 0
	changed, version := l.node.registry.Changes(l.version)
	l.version = version
	for _, rec := range changed {
		l.compareGroup(rec, anew)
	}
}

// isFresh reports whether the registry may be used against what is on this node's disk.
func (l *lifecycle) isFresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fresh
}

// isSwept reports whether it has been: the replicas of groups that were deleted while
// this node was down are gone, and the others may serve.
func (l *lifecycle) isSwept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.swept || mutant.On(mutant.ServeBeforeRegistry)
}

// setFresh hears that the registry has been read linearizably since the start.
// Before that it may be older than the replicas on the disk, and must not be
// used against them.
func (l *lifecycle) setFresh() {
	l.mu.Lock()
	l.fresh = true
	l.mu.Unlock()
	l.poke()
}

// lost hears that this node is no member of the system group any more: what the registry
// says here is not followed up.
func (l *lifecycle) lost() {
	l.mu.Lock()
	l.fresh, l.swept = false, false
	l.mu.Unlock()
}

// compareGroup compares one group, whose record must not change from now on. anew: that may
// be from before this start.
func (l *lifecycle) compareGroup(rec *registry.Group, anew bool) {
	r := l.node.replica(rec.ID)
	switch {
	case r != nil && (rec.Deleted || r.incarnation != rec.Incarnation):
		last := remains{Descriptor: r.view.Load().State.Descriptor, Deleted: true}
		last.Kind = cmp.Or(last.Kind, rec.Kind)
		l.destroy(r, last)
		if !rec.Deleted {
			l.found(rec, anew)
		}
	case rec.Deleted:
	case r != nil:
		l.node.steerTo(r, rec)
	default:
		l.found(rec, anew)
	}
}

// found asks for the group's first replica, if it is this node that founds it
// and the group has not been here before. anew is as in compareGroup.
func (l *lifecycle) found(rec *registry.Group, anew bool) {
	if rec.Seed != l.node.cfg.ID || !l.mayFound(rec) {
		return
	}
	if st, ok := l.node.store.Replica(rec.ID); ok && st.Incarnation == rec.Incarnation {
		return
	}
	d := group.Descriptor{
		Group: rec.ID, Incarnation: rec.Incarnation, Kind: rec.Kind,
		Epoch: 1, NextReplica: 2,
		Members: []group.Member{{
			ID: 1, Node: l.node.cfg.ID, Role: group.Voter, Store: l.node.ownStore(),
		}},
		SnapshotEntries: rec.SnapshotEntries, TrailingEntries: rec.TrailingEntries,
	}
	c := creation{group: rec.ID, incarnation: rec.Incarnation, id: 1, genesis: &d}
	if anew && l.node.store.Identity().Boot > 1 {
		l.node.beginnings.add(c, rec)
		return
	}
	l.mu.Lock()
	l.creates[rec.ID] = c
	l.mu.Unlock()
}

// mayFound reports whether a group that begins on this node has not been founded before,
// in a directory that is lost. If nobody knew the directory when the group was created,
// it begins in the first one that the node had.
func (l *lifecycle) mayFound(rec *registry.Group) bool {
	first := l.node.directory(l.node.cfg.ID).First
	return cmp.Or(rec.SeedStore, first) == l.node.ownStore()
}
