package node

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// A replica is this node's member of one group: the raft state, which its
// worker owns, and the state machine, which the appliers run.
//
// Its life:
//
//	           first message, or seed
//	(nothing) ────────────────────────▶ live ──── proof of removal ───▶ removed ──▶ (tombstone)
//	                                     │
//	                                     └── damage, panic, error ───▶ stopped (on disk, shown)
type replica struct {
	group       raftyard.GroupID
	incarnation raftyard.Incarnation
	id          raftyard.ReplicaID
	node        raftyard.NodeID
	worker      *worker
	log         *storage.Log
	machine     *machine
	pins        pins
	sending     int // snapshots for which raft waits to hear how they end
	events      *events

	// lives is how often it was opened again since the node has started.
	lives int

	// attempts is how often it was opened again without being asked.
	attempts atomic.Int64

	// gone is closed when the replica serves nobody any more: it is removed or
	// stopped, or the node closes. goneErr says why.
	gone     chan struct{}
	goneErr  error // written before it serves no more, and before gone is closed
	goneOnce sync.Once
	stopped  atomic.Bool // gone is closed, or is about to be

	// applied is the index that the state machine has applied.
	applied       atomic.Uint64
	appliedPosted atomic.Bool // it stands in the worker's mailbox

	// receiving: a state for a replica without a state machine is coming in.
	receiving atomic.Bool

	// rotten: that its state is damaged waits for the state machine's turn.
	rotten atomic.Bool

	// leaderless is for how many ticks it has heard of no leader, without being one.
	// suspect is set when somebody has said that it does not know who its members are.
	// sender is the node that spoke to it last of those that it does not know.
	suspect    atomic.Bool
	leaderless atomic.Int64
	sender     atomic.Uint64
	straying   straying

	// view is what others may know of the raft state, ailing what a leader has seen of
	// its members, and lingers what the replica has seen of a change of members.
	view    atomic.Pointer[view]
	ailing  atomic.Pointer[ailing]
	lingers atomic.Pointer[lingering]

	// old: it was there when the node started. Set before anybody is heard.
	old bool

	owned
}

// owned is the part of a replica that only its worker touches, once the replica
// has been handed to it.
type owned struct {
	raft *group.Replica

	// out is the step that is under way while busy is true: its append is with
	// the committer, or its snapshot is being installed.
	out  group.Output
	busy bool

	opening  bool // it is to be opened again, because of a skip
	dirty    bool // stands in the worker's list of replicas to look at
	listed   bool // stands in its roster
	answered bool // clients have just been answered, see [worker.hold]

	tidings tidings
	unsaved unsaved
	// proposing is as many bytes of its proposals as Node.proposing counts.
	proposing int64

	meta      meta // as last given to the committer
	peers     map[raftyard.ReplicaID]raftyard.NodeID
	behind    followers
	reads     []waitingRead // by index
	staged    *stagedSnapshot
	told      *vouched // see tickTold
	toldTicks int
	hearing   hearing
	snap      snapshotting
	own       owning
	handBack  handBack
	steering  steering
	health    health
	halfway   halfway
	source    sourcing
	sleep     sleeping
	leader    group.LeaderChange
	placed    placed
}

// waitingRead is a confirmed read that waits for the state machine.
type waitingRead struct {
	index uint64
	call  *call
}

// A view is the part of a replica's state that is published after each change.
type view struct {
	Role       string
	Term       uint64
	Leader     raftyard.ReplicaID
	LeaderNode raftyard.NodeID
	State      group.State

	given []raftyard.StoreID // to which the members of State were given, in their order
	lost  bool               // this replica is, see directories.go
}

// steering is what a leader does to bring its group to the wanted membership.
type steering struct {
	want     *registry.Group             // from the registry; nil: nothing known
	term     uint64                      // in which want holds; of the system group alone
	changing bool                        // a membership change of ours is under way
	unmet    bool                        // the plan is not done
	damaged  map[raftyard.ReplicaID]bool // members that are, as they say themselves
	why      string
	transfer *transfer
	offers   offers
}

// byGroup orders replicas by their groups.
func byGroup(a, b *replica) int { return cmp.Compare(a.group, b.group) }

func (r *replica) String() string {
	return fmt.Sprintf("group %d replica %d", r.group, r.id)
}

// stopServing closes gone, with the reason.
func (r *replica) stopServing(reason error) {
	r.goneOnce.Do(func() {
		r.goneErr = reason
		r.stopped.Store(true)
		close(r.gone)
	})
}

// goneReason is called when the replica serves no more.
func (r *replica) goneReason() error { return r.goneErr }

// fault returns why the replica is in quarantine, or nil while it is not. One that is
// serving goes on without its state machine.
func (r *replica) fault() error {
	if r.serving() {
		return r.machine.fault()
	}
	if errors.Is(r.goneErr, ErrFaulty) {
		return r.goneErr
	}
	return nil
}

// serving reports whether the replica has not gone. It is asked several times for each
// message, which is why it does not look at the channel.
func (r *replica) serving() bool { return !r.stopped.Load() }

// nodeOf returns the node of a member, as far as the descriptor or the messages
// seen so far tell; zero if they do not. The worker calls it.
func (r *replica) nodeOf(id raftyard.ReplicaID) raftyard.NodeID {
	if id == 0 {
		return 0
	}
	if m, ok := r.meta.State.Descriptor.Member(id); ok {
		return m.Node
	}
	return r.peers[id]
}

// learn remembers where a message came from. A replica that has no descriptor
// yet must be able to answer; one that has keeps what it says.
func (r *replica) learn(from raftyard.ReplicaID, node raftyard.NodeID) {
	if _, ok := r.meta.State.Descriptor.Member(from); ok {
		return
	}
	r.sender.Store(uint64(node))
	if r.peers == nil {
		r.peers = make(map[raftyard.ReplicaID]raftyard.NodeID, 2)
	}
	if len(r.peers) < maxLearnedPeers {
		r.peers[from] = node
	}
}

// maxLearnedPeers bounds what messages can make a replica remember.
const maxLearnedPeers = 64

// endpoint is this replica as the transport addresses it.
func (r *replica) endpoint() transport.Endpoint {
	return transport.Endpoint{Node: r.node, Replica: r.id}
}

// publish makes the present view visible to everybody.
func (r *replica) publish() {
	given := r.place()
	r.view.Store(&view{
		given:      given,
		lost:       r.placed.self,
		Role:       r.leader.Role.String(),
		Term:       r.leader.Term,
		Leader:     r.leader.Leader,
		LeaderNode: r.nodeOf(r.leader.Leader),
		State:      r.meta.State,
	})
}

// initialized reports whether the replica has a descriptor, and so a state.
func (v *view) initialized() bool { return v != nil && len(v.State.Descriptor.Members) > 0 }

// errNotServing is what a control finds when the replica has gone.
var errNotServing = errors.New("the replica is gone")
