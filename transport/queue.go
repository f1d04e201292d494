package transport

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// lane is how dear an envelope is when a queue is full: the lowest lane is
// dropped first.
type lane uint8

const (
	laneBulk     lane = iota // MsgApp and MsgSnap: large, and sent again by raft
	laneNormal               // answers, reads, transfers, notices
	laneElection             // votes and heartbeats: losing them costs a leader
	numLanes
)

func laneOf(env *Envelope) lane {
	switch env.Message.GetType() {
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		return laneElection
	case raftpb.MsgApp, raftpb.MsgSnap:
		return laneBulk
	default:
		return laneNormal
	}
}

// queued is an envelope in a queue. seq is its place among those of all lanes.
type queued struct {
	env  Envelope
	size int
	seq  uint64
}

// queue holds the envelopes that wait for one peer. It gives them back in the
// order in which they came, whatever their lanes; lanes only decide what goes
// when it is full. It is safe for concurrent use.
type queue struct {
	maxBytes int64
	maxCount int
	wake     chan struct{} // holds a value when there may be something to take

	mu     sync.Mutex
	lanes  [numLanes]ring
	bytes  int64
	count  int
	seq    uint64
	closed Reason // not dropNothing: everything is dropped, for this reason
}

func newQueue(maxBytes int64, maxCount int) *queue {
	return &queue{maxBytes: maxBytes, maxCount: maxCount, wake: make(chan struct{}, 1)}
}

// push adds the envelopes. Those that are dropped, whether from among them or
// from what waited already, are passed to drop, after the queue's lock is released.
func (q *queue) push(batch []Envelope, drop func(env *Envelope, why Reason)) {
	dropped, why := q.pushAll(batch)
	for i := range dropped {
		drop(&dropped[i].env, why)
	}
	q.poke()
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) pushAll(batch []Envelope) (dropped []queued, why Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range batch {
		item := queued{env: batch[i], size: sizeEnvelope(&batch[i]), seq: q.seq}
		q.seq++
		if q.closed != dropNothing {
			dropped = append(dropped, item)
			continue
		}
		l := laneOf(&item.env)
		dropped = q.makeRoomLocked(l, item.size, dropped)
		if !q.fitsLocked(item.size) {
			dropped = append(dropped, item)
			continue
		}
		q.lanes[l].pushBack(item)
		q.bytes += int64(item.size)
		q.count++
	}
	if q.closed != dropNothing {
		return dropped, q.closed
	}
	return dropped, DropQueueFull
}

func (q *queue) fitsLocked(size int) bool {
	return q.count < q.maxCount && q.bytes+int64(size) <= q.maxBytes
}

// makeRoomLocked drops from lower lanes, the latest first, until size fits or
// nothing of them is left: a follower can use the first of several MsgApps
// without the last, but not the last without the first.
func (q *queue) makeRoomLocked(l lane, size int, dropped []queued) []queued {
	for lower := range l {
		for !q.fitsLocked(size) && q.lanes[lower].len() > 0 {
			item := q.lanes[lower].popBack()
			q.bytes -= int64(item.size)
			q.count--
			dropped = append(dropped, item)
		}
	}
	return dropped
}

// take moves envelopes from the front of the queue to batch until they would
// exceed the size, or number more than one frame may hold. It takes at least one
// if there is one.
func (q *queue) take(batch []Envelope, size int) []Envelope {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := 0
	for q.count > 0 && len(batch) < maxEnvelopes {
		r := q.firstLocked()
		next := r.front().size
		if len(batch) > 0 && taken+next > size {
			break
		}
		item := r.popFront()
		q.bytes -= int64(item.size)
		q.count--
		taken += item.size
		batch = append(batch, item.env)
	}
	return batch
}

// firstLocked returns the lane whose front came first. The queue is not empty.
func (q *queue) firstLocked() *ring {
	var first *ring
	for i := range q.lanes {
		r := &q.lanes[i]
		if r.len() > 0 && (first == nil || r.front().seq < first.front().seq) {
			first = r
		}
	}
	return first
}

// close drops what waits and all that comes until open is called.
func (q *queue) close(why Reason, drop func(env *Envelope, why Reason)) {
	q.mu.Lock()
	lanes := q.lanes
	q.lanes = [numLanes]ring{}
	q.bytes, q.count, q.closed = 0, 0, why
	q.mu.Unlock()
	for i := range lanes {
		for r := &lanes[i]; r.len() > 0; {
			item := r.popFront()
			drop(&item.env, why)
		}
	}
}

func (q *queue) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = dropNothing
}

func (q *queue) length() (count int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, q.bytes
}

// ring is a double-ended queue in a slice that grows and, when it has become
// empty, is let go if it was large.
type ring struct {
	items []queued // len is a power of two, or zero
	head  int
	n     int
}

// keepRing is the number of places that an empty ring may keep.
const keepRing = 1024

func (r *ring) len() int       { return r.n }
func (r *ring) at(i int) int   { return (r.head + i) & (len(r.items) - 1) }
func (r *ring) front() *queued { return &r.items[r.head] }

func (r *ring) pushBack(item queued) {
	if r.n == len(r.items) {
		grown := make([]queued, max(16, 2*len(r.items)))
		for i := range r.n {
			grown[i] = r.items[r.at(i)]
		}
		r.items, r.head = grown, 0
	}
	r.items[r.at(r.n)] = item
	r.n++
}

func (r *ring) popFront() queued { return r.remove(0) }
func (r *ring) popBack() queued  { return r.remove(r.n - 1) }

// remove takes out the item at i, which is the first or the last.
func (r *ring) remove(i int) queued {
	p := r.at(i)
	item := r.items[p]
	r.items[p] = queued{}
	if i == 0 {
		r.head = r.at(1)
	}
	r.n--
	if r.n == 0 && len(r.items) > keepRing {
		r.items, r.head = nil, 0
	}
	return item
}
