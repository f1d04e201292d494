package node

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// Nodes tell each other that they live, so that groups need not: a beat now and then to
// each node that is connected. None leaves while a worker makes no progress or the disk
// does not answer, since such a node leads nothing either. A node whose beats stay away
// does not live, whatever else of it can be reached.
//
// Which life of a node it is, the process tells that has sent the beat, and the turn in
// it: how often a replica has stopped there since the start. What others believe about
// replicas of a node holds for one turn of one life.

const (
	// silentNode is after how many election timeouts without a beat a node does not live
	// any more, in halves.
	silentNode = 3
	// wedgedWorker is how long, as a part of an election timeout, a worker may make no
	// progress until the node does not say any more that it lives.
	wedgedWorker = 2
)

// A nodeLife tells two lives of a node, and two turns of a life, from each other.
type nodeLife struct {
	process uuid.UUID
	turn    uint64
}

// A nodeState is what is known of whether a node lives.
type nodeState uint8

const (
	// nodeUnknown: it is connected, and no beats come.
	nodeUnknown nodeState = iota
	// nodeLives: its beats come.
	nodeLives
	// nodeGone: no beats come, and it cannot be reached.
	nodeGone
)

// A nodeView is what is known of a node.
type nodeView struct {
	state nodeState
	life  nodeLife // zero unless it lives
}

// nodeViews are those of all nodes but this one. They never change.
type nodeViews map[raftyard.NodeID]nodeView

// liveness is what this node knows of the others, and tells of itself. The zero value is
// ready.
type liveness struct {
	turn  atomic.Uint64
	views atomic.Pointer[nodeViews] // nil: nothing is known of anybody

	mu    sync.Mutex
	heard map[raftyard.NodeID]heardBeat
}

type heardBeat struct {
	life nodeLife
	at   time.Time
}

// sleeps reports whether groups of this node may sleep.
func (c *Config) sleeps() bool { return c.SleepTicks > 0 }

// beatTicks is how many ticks there are between two beats.
func (c *Config) beatTicks() int { return c.HeartbeatTicks }

// beatPatience is how long no beat must have come of a node that does not live any more.
func (n *Node) beatPatience() time.Duration {
	return n.ticks(silentNode*n.cfg.ElectionTicks)/2 + n.ticks(n.cfg.beatTicks())
}

// beat hears that a node lives.
func (l *liveness) beat(id raftyard.NodeID, life nodeLife, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard == nil {
		l.heard = make(map[raftyard.NodeID]heardBeat)
	}
	l.heard[id] = heardBeat{life: life, at: now}
}

// heartbeats sends beats and looks at those that have come, until the node stops.
func (n *Node) heartbeats() {
	left := 0
	n.world.every(n.running, n.cfg.TickInterval, func() {
		peers := n.transport.Peers()
		if left--; left <= 0 {
			left = n.cfg.beatTicks()
			n.sendBeats(peers)
		}
		n.lookAtBeats(peers)
	})
}

// sendBeats tells the others that this node lives, if it does.
func (n *Node) sendBeats(peers []transport.PeerStatus) {
	if n.slow.muted.Load() || n.Err() != nil || n.isWedged() {
		return
	}
	beats, of := make([]transport.Envelope, 0, len(peers)), n.systemIncarnation()
	for i := range peers {
		if !peers[i].Up {
			continue
		}
		beats = append(beats, transport.Envelope{
			Group: raftyard.SystemGroup, Incarnation: of,
			From:   transport.Endpoint{Node: n.cfg.ID, Replica: 1},
			To:     transport.Endpoint{Node: peers[i].Node, Replica: 1},
			Notice: &transport.Notice{Kind: transport.NoticeBeat, Turn: n.liveness.turn.Load()},
		})
	}
	if len(beats) > 0 {
		n.transport.Send(beats)
	}
}

// isWedged reports whether a worker has not done for a while what it was asked to.
func (n *Node) isWedged() bool {
	limit := n.ticks(n.cfg.ElectionTicks) / wedgedWorker
	now := int64(n.uptime())
	return slices.ContainsFunc(n.workers, func(w *worker) bool {
		return now-w.ticked.Load() > int64(max(limit, n.ticks(2)))
	})
}

// lookAtBeats lets the workers know who lives.
func (n *Node) lookAtBeats(peers []transport.PeerStatus) {
	now, next := n.world.now(), make(nodeViews, len(peers))
	n.liveness.mu.Lock()
	for i := range peers {
		id := peers[i].Node
		b, ok := n.liveness.heard[id]
		switch {
		case ok && now.Sub(b.at) <= n.beatPatience():
			next[id] = nodeView{state: nodeLives, life: b.life}
		case peers[i].Up:
			next[id] = nodeView{state: nodeUnknown}
		default:
			next[id] = nodeView{state: nodeGone}
		}
	}
	maps.DeleteFunc(n.liveness.heard, func(id raftyard.NodeID, _ heardBeat) bool {
		return next[id].state != nodeLives
	})
	n.liveness.mu.Unlock()
	if before := n.liveness.load(); !maps.Equal(before, next) {
		n.liveness.views.Store(&next)
	}
}

// load returns what is known now.
func (l *liveness) load() nodeViews {
	if v := l.views.Load(); v != nil {
		return *v
	}
	return nil
}

// count returns how many other nodes live.
func (vs nodeViews) count() (lives int) {
	for _, v := range vs {
		if v.state == nodeLives {
			lives++
		}
	}
	return lives
}

// changed returns the nodes, by id, of which something else is known than before.
func (vs nodeViews) changed(before nodeViews) []raftyard.NodeID {
	var ids []raftyard.NodeID
	for id, v := range vs {
		if before[id] != v {
			ids = append(ids, id)
		}
	}
	for id, v := range before {
		if _, still := vs[id]; !still && v != (nodeView{}) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}
