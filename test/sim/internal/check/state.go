package check

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/transport"
)

// A groupKey names one life of a group.
type groupKey struct {
	id          raftyard.GroupID
	incarnation raftyard.Incarnation
}

func (k groupKey) compare(o groupKey) int {
	return cmp.Or(cmp.Compare(k.id, o.id), bytes.Compare(k.incarnation[:], o.incarnation[:]))
}

// groupState is all that is remembered of a group.
type groupState struct {
	key groupKey

	reigns    map[uint64]*reign // by term
	committed window
	commit    uint64   // the highest commit index that was seen
	changes   []change // by index
	applied   sequence
	hashes    map[uint64]uint64 // of state machines, by index
	acked     uint64            // the highest index of an acknowledged write

	replicas map[raftyard.ReplicaID]*replicaState
	order    []*replicaState // by id

	moved time.Duration // when leader or term last changed
}

func newGroup(key groupKey) *groupState {
	return &groupState{
		key:      key,
		reigns:   make(map[uint64]*reign),
		hashes:   make(map[uint64]uint64),
		replicas: make(map[raftyard.ReplicaID]*replicaState),
	}
}

func (g *groupState) replica(id raftyard.ReplicaID) *replicaState {
	s := g.replicas[id]
	if s == nil {
		s = &replicaState{group: g, id: id}
		g.replicas[id] = s
		at, _ := slices.BinarySearchFunc(g.order, id,
			func(s *replicaState, id raftyard.ReplicaID) int { return cmp.Compare(s.id, id) })
		g.order = slices.Insert(g.order, at, s)
	}
	return s
}

// replicaState is all that is remembered of a replica.
type replicaState struct {
	group *groupState
	id    raftyard.ReplicaID
	home  home

	// shown: its running node has it. dead: it was destroyed. lost: it has not kept
	// its promises, and is out for ever. excused: it was broken on purpose. unseen: it has
	// lost promises and cannot know before others tell.
	shown, dead, lost, excused, unseen bool

	seen  sight
	spoke bool        // since it was seen
	state group.State // the members, as last seen
	log   Log         // what is durable, as of now; nil if it cannot be had

	promised promises
	verified uint64 // up to here, what is committed was compared
	machine  machine
}

// A home is where a replica is: a node and a directory of it.
type home struct {
	node *nodeState
	disk int
}

// A sight is what was last seen of a replica.
type sight struct {
	serving bool
	broken  bool // its state machine
	lives   int
	role    group.RaftRole
	term    uint64
	vote    raftyard.ReplicaID
	leader  raftyard.ReplicaID
	commit  uint64
	first   uint64
	last    uint64
	handed  uint64
	applied uint64
	members uint64 // index of the state
	epoch   uint64
	asleep  bool
	dormant bool
	wakes   uint64

	durableFirst, durableLast uint64
}

func sightOf(r *Replica, log Log) sight {
	s := sight{
		serving: r.Serving, broken: r.Broken != nil, lives: r.Lives,
		role: r.Role, term: r.Term, vote: r.Vote, leader: r.Leader,
		commit: r.Commit, first: r.First, last: r.Last, handed: r.HandedTo,
		applied: r.Applied, members: r.State.Index, epoch: r.State.Descriptor.Epoch,
		asleep: r.Asleep, dormant: r.Dormant, wakes: r.Wakes,
	}
	if log != nil {
		s.durableFirst, s.durableLast = log.Bounds()
	}
	return s
}

func (s *replicaState) String() string {
	where := "nowhere"
	if s.home.node != nil {
		where = fmt.Sprintf("node %d", s.home.node.id)
	}
	return fmt.Sprintf("group %d replica %d on %s", s.group.key.id, s.id, where)
}

// nodeState is all that is remembered of a node.
type nodeState struct {
	id      raftyard.NodeID
	up      bool
	drained bool // it shall lead nothing
	disk    int  // how often it was wiped
	loss    Loss // of the last crash
	lacks   bool // it has no state machines now
	had     bool // it had some, now or in an earlier start
	forgot  bool // its disk has lost a part, and with it whether it had some
	shown   []*replicaState
	stored  []tomb

	// early is what it sent before it could be looked at.
	early []transport.Envelope

	// regresses are what it opened before that.
	regresses []regress
}

// A regress is a state machine that has begun before where it was durable.
type regress struct {
	s    *replicaState
	text string
}

// A tomb is what was last seen of an entry of the log store.
type tomb struct {
	key  groupKey
	id   raftyard.ReplicaID
	next raftyard.ReplicaID // zero unless it is a tombstone
	bad  bool
	full bool // a tombstone, and not everything else is deleted
}
