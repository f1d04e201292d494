package transport

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// maxReports bounds how many pairs of replicas wait to be reported for one
// peer. Beyond it only lost snapshots are still taken in, of which raft has at
// most one on its way to each replica.
const maxReports = 1 << 16

// pair is what is reported once, however many messages were lost.
type pair struct {
	group    raftyard.GroupID
	from, to raftyard.ReplicaID
}

func pairOf(env *Envelope) pair {
	return pair{group: env.Group, from: env.From.Replica, to: env.To.Replica}
}

// reporter tells the handler what was not delivered. Its one goroutine calls
// HandleUnreachable, at most once an interval for each peer.
type reporter struct {
	interval time.Duration
	tell     func(node raftyard.NodeID, dropped []Dropped)
	wake     chan struct{}

	mu    sync.Mutex
	peers map[raftyard.NodeID]*reports
}

type reports struct {
	pairs map[pair]bool // true: a snapshot was among them
	next  time.Time     // when the next call may be made
}

func newReporter(interval time.Duration, tell func(raftyard.NodeID, []Dropped)) *reporter {
	return &reporter{
		interval: interval, tell: tell,
		wake:  make(chan struct{}, 1),
		peers: make(map[raftyard.NodeID]*reports),
	}
}

// add notes that env was not delivered. Notices are not reported: nobody waits
// for them.
func (r *reporter) add(env *Envelope) {
	if env.Message == nil {
		return
	}
	r.addPairs(env.To.Node, map[pair]bool{pairOf(env): env.Message.GetType() == raftpb.MsgSnap})
}

func (r *reporter) addPairs(node raftyard.NodeID, pairs map[pair]bool) {
	if len(pairs) == 0 {
		return
	}
	r.mu.Lock()
	p := r.peers[node]
	if p == nil {
		p = &reports{pairs: make(map[pair]bool)}
		r.peers[node] = p
	}
	for k, snapshot := range pairs {
		if _, known := p.pairs[k]; known || snapshot || len(p.pairs) < maxReports {
			p.pairs[k] = p.pairs[k] || snapshot
		}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		if wait := r.report(ctx, time.Now()); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// report makes the calls that are due, and returns how long it is to the next,
// or zero if there is none to come.
func (r *reporter) report(ctx context.Context, now time.Time) (wait time.Duration) {
	for node, dropped := range r.due(now, &wait) {
		if ctx.Err() != nil {
			return 0
		}
		r.tell(node, dropped)
	}
	return wait
}

func (r *reporter) due(now time.Time, wait *time.Duration) map[raftyard.NodeID][]Dropped {
	due := make(map[raftyard.NodeID][]Dropped)
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, p := range r.peers {
		if len(p.pairs) == 0 {
			continue
		}
		if left := p.next.Sub(now); left > 0 {
			if *wait == 0 || left < *wait {
				*wait = left
			}
			continue
		}
		list := make([]Dropped, 0, len(p.pairs))
		for k, snapshot := range p.pairs {
			list = append(list, Dropped{Group: k.group, From: k.from, To: k.to, Snapshot: snapshot})
		}
		due[node] = list
		p.pairs = make(map[pair]bool)
		p.next = now.Add(r.interval)
	}
	return due
}

// unacked remembers which pairs were written to a connection and not
// acknowledged by the answer to a later ping: they are what a broken connection
// may have lost. Only MsgApp and MsgSnap count: raft sends everything else again
// by itself, or does without.
type unacked struct {
	mu       sync.Mutex
	old, new map[pair]bool
	oldMark  uint64 // old is acknowledged when the peer has read this many bytes
}

func (u *unacked) wrote(batch []Envelope) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range batch {
		env := &batch[i]
		if env.Message == nil || laneOf(env) != laneBulk {
			continue
		}
		if u.new == nil {
			u.new = make(map[pair]bool)
		}
		k := pairOf(env)
		u.new[k] = u.new[k] || env.Message.GetType() == raftpb.MsgSnap
	}
}

// pinging tells that a ping is sent after the given number of bytes.
func (u *unacked) pinging(written uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.old) == 0 {
		u.old, u.new, u.oldMark = u.new, u.old, written
	}
}

// acked tells that the peer has read the given number of bytes.
func (u *unacked) acked(read uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if read >= u.oldMark {
		clear(u.old)
	}
}

// lost empties u and returns what was in it.
func (u *unacked) lost() map[pair]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[pair]bool, len(u.old)+len(u.new))
	for _, m := range []map[pair]bool{u.old, u.new} {
		for k, snapshot := range m {
			all[k] = all[k] || snapshot
		}
	}
	u.old, u.new = nil, nil
	return all
}
