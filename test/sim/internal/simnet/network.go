package simnet

import (
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/sim/internal/trace"
	"github.com/raftyard/raftyard/test/sim/internal/turns"
	"github.com/raftyard/raftyard/transport"
)

// A Route is one direction between two nodes.
type Route struct{ From, To raftyard.NodeID }

// Faults are what is wrong with a route. The zero value is a good one. Those that
// are probabilities are of each envelope, request or chunk.
type Faults struct {
	Cut bool // nothing passes

	// Delay, and up to Jitter more, is what a message takes beyond the latency.
	Delay, Jitter time.Duration

	// Loss, Duplicate and Reorder are of the envelopes of Send. Duplicates and
	// stragglers arrive out of order.
	Loss, Duplicate, Reorder float64

	// Break breaks the connection: by a damaged frame, or for no reason.
	Break float64

	// LoseRequest and LoseAnswer break the connection before the peer gets a request,
	// or before its answer arrives. Busy has the peer refuse it.
	LoseRequest, LoseAnswer, Busy float64

	// Late has a request that was on its way when its connection broke arrive some
	// seconds later all the same.
	Late float64

	// BreakSnapshot breaks a stream at a chunk; ChunkDelay is what each chunk takes.
	BreakSnapshot float64
	ChunkDelay    time.Duration
}

// Config holds the settings of a [Network].
type Config struct {
	Scheduler *turns.Scheduler
	Dice      *rand.Rand
	Trace     *trace.Trace

	// Latency is what a message takes at the least. Default: 200 µs.
	Latency time.Duration

	// DeadAfter is after how long a connection on which nothing passes is given up,
	// and DialTimeout how long dialling may take. Defaults: 1 s, 500 ms.
	DeadAfter, DialTimeout time.Duration

	// Sent, if set, is called with every envelope that a node sends.
	Sent func(from raftyard.NodeID, env *transport.Envelope)

	// Streamed, if set, is called when a node begins to receive a snapshot.
	Streamed func(to raftyard.NodeID)
}

// Network connects the nodes of a simulation.
type Network struct {
	cfg    Config
	s      *turns.Scheduler
	dice   *rand.Rand
	ends   map[raftyard.NodeID]*Endpoint // that listen now
	faults map[Route]*Faults

	intercept func(env *transport.Envelope) Verdict
	held      []*hold
	counts    Counts
	calm      bool
}

// Counts are what a network has done.
type Counts struct {
	Envelopes, Lost, Duplicated, Reordered uint64
	Requests, RequestsLost, RequestsLate   uint64
	Snapshots, SnapshotsBroken             uint64
	Breaks                                 uint64
}

// Add adds other counts.
func (c *Counts) Add(o Counts) {
	c.Envelopes, c.Lost = c.Envelopes+o.Envelopes, c.Lost+o.Lost
	c.Duplicated, c.Reordered = c.Duplicated+o.Duplicated, c.Reordered+o.Reordered
	c.Requests, c.RequestsLost = c.Requests+o.Requests, c.RequestsLost+o.RequestsLost
	c.RequestsLate += o.RequestsLate
	c.Snapshots, c.SnapshotsBroken = c.Snapshots+o.Snapshots, c.SnapshotsBroken+o.SnapshotsBroken
	c.Breaks += o.Breaks
}

// New returns a network without nodes and faults.
func New(cfg Config) *Network {
	if cfg.Latency == 0 {
		cfg.Latency = 200 * time.Microsecond
	}
	if cfg.DeadAfter == 0 {
		cfg.DeadAfter = time.Second
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 500 * time.Millisecond
	}
	if cfg.Trace == nil {
		cfg.Trace = trace.New(0, nil)
	}
	return &Network{
		cfg: cfg, s: cfg.Scheduler, dice: cfg.Dice,
		ends:   make(map[raftyard.NodeID]*Endpoint),
		faults: make(map[Route]*Faults),
	}
}

// Counts returns what the network has done so far.
func (n *Network) Counts() Counts { return n.counts }

// Faults returns what is wrong with a route.
func (n *Network) Faults(r Route) Faults { return *n.route(r) }

// SetFaults changes what is wrong with a route.
func (n *Network) SetFaults(r Route, change func(*Faults)) {
	f := n.route(r)
	cut := f.Cut
	change(f)
	if f.Cut != cut {
		n.cutChanged(r, f.Cut)
	}
}

// Heal ends all faults of all routes among the given nodes.
func (n *Network) Heal(nodes []raftyard.NodeID) {
	for _, from := range nodes {
		for _, to := range nodes {
			if from != to {
				n.SetFaults(Route{from, to}, func(f *Faults) { *f = Faults{} })
			}
		}
	}
}

// Calm ends the now and then long latency, which can be longer than the patience of
// a group.
func (n *Network) Calm() { n.calm = true }

// Known reports whether all others that listen know a node as it is now.
func (n *Network) Known(node raftyard.NodeID) bool {
	e := n.ends[node]
	for _, other := range n.ends {
		if e == nil || other != e && other.seen[node] != e.id {
			return false
		}
	}
	return true
}

// Connected returns the others that have a connection with a node, in either direction,
// that has come up after a moment, in order.
func (n *Network) Connected(node raftyard.NodeID, after time.Duration) (peers []raftyard.NodeID) {
	for id, e := range n.ends {
		for _, c := range e.conns {
			if c.state != up || c.remote.closed || c.made <= after {
				continue
			}
			switch node {
			case id:
				peers = append(peers, c.to)
			case c.to:
				peers = append(peers, id)
			}
		}
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}

func (n *Network) route(r Route) *Faults {
	f := n.faults[r]
	if f == nil {
		f = new(Faults)
		n.faults[r] = f
	}
	return f
}

// cutChanged tells the connection on the route.
func (n *Network) cutChanged(r Route, cut bool) {
	what := "heal"
	if cut {
		what = "cut"
	}
	n.event(r.From, what, r.To, "")
	e := n.ends[r.From]
	if e == nil {
		return
	}
	if c := e.known(r.To); c != nil {
		c.cutChanged(cut)
	}
}

// latency is how long something takes now on a route.
func (n *Network) latency(f *Faults) time.Duration {
	d := n.cfg.Latency + time.Duration(n.dice.Int64N(int64(n.cfg.Latency)))
	if n.dice.Uint32()&255 == 0 && !n.calm {
		d *= 20
	}
	if f.Jitter > 0 {
		d += time.Duration(n.dice.Int64N(int64(f.Jitter)))
	}
	return d + f.Delay
}

// chance lets something happen with a probability.
func (n *Network) chance(p float64) bool { return p > 0 && n.dice.Float64() < p }

func (n *Network) event(node raftyard.NodeID, what string, peer raftyard.NodeID, text string) {
	n.cfg.Trace.Add(trace.Event{
		At: n.s.Time(), Node: node, What: what, Peer: peer, Text: text,
	})
}

// message traces an envelope.
func (n *Network) message(
	node raftyard.NodeID, what string, peer raftyard.NodeID, env *transport.Envelope,
) {
	e := trace.Event{At: n.s.Time(), Node: node, What: what, Peer: peer, Group: env.Group}
	if env.Message != nil {
		e.Text = shortNames[env.Message.GetType()]
		e.A, e.B = env.Message.GetTerm(), env.Message.GetIndex()
	} else {
		e.Text = env.Notice.Kind.String()
	}
	n.cfg.Trace.Add(e)
}

// shortNames are the names of message types; a map of protobuf's is slow.
var shortNames = func() (names [int(raftpb.MsgForgetLeader) + 1]string) {
	for i := range names {
		names[i] = raftpb.MessageType(i).String()
	}
	return names
}()
