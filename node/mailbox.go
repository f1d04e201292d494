package node

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

const (
	// maxMailMessages bounds the raft messages that wait for one worker. More
	// are dropped; raft sends them again.
	maxMailMessages = 1 << 14
	// maxMailRequests bounds the proposals and reads that wait. More are refused.
	maxMailRequests = 1 << 14
	// maxMailTicks bounds the ticks that a late worker catches up with. A worker
	// that was stopped for long must not run every group into an election.
	maxMailTicks = 2
)

// A mailbox is how a worker is told what to do. Putting something in never
// blocks; each lane has a bound, and says what happens when it is full, or is
// bounded by the number of replicas or of waiting callers.
type mailbox struct {
	wake chan struct{} // holds one signal
	most int           // bytes of messages and proposals that may wait

	mu     sync.Mutex
	mail   mail
	bytes  int
	closed bool
}

// mail is what a worker finds in its mailbox.
type mail struct {
	ticks     int
	messages  []inbound
	proposals []proposal
	reads     []*call
	saved     []*replica // whose append is durable; at most one each
	applied   []*replica // whose state machine went on; at most one each
	controls  []func()   // each has a caller that waits, or comes once for a replica
	closed    bool
}

// inbound is a raft message for a replica, or a notice.
type inbound struct {
	r    *replica
	from raftyard.NodeID
	m    *raftpb.Message
	told *vouched // instead of m

	damaged raftyard.ReplicaID // instead of m: the member that says that it is

	sleep *sleepNote // instead of m
	rouse bool       // instead of m: it must be awake
}

// vouched is an entry of which somebody says that it is committed.
type vouched struct {
	from        raftyard.ReplicaID
	index, term uint64
}

// proposal is a command for a replica.
type proposal struct {
	r *replica
	p group.Proposal
}

func newMailbox(most int64) *mailbox {
	return &mailbox{wake: make(chan struct{}, 1), most: int(most)}
}

// put runs fill under the lock and wakes the worker if fill reports that it
// added something.
func (b *mailbox) put(fill func(m *mail) bool) bool {
	b.mu.Lock()
	added := !b.closed && fill(&b.mail)
	b.mu.Unlock()
	if added {
		b.signal()
	}
	return added
}

func (b *mailbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// tick adds one tick, up to a bound.
func (b *mailbox) tick() {
	b.put(func(m *mail) bool {
		if m.ticks == maxMailTicks {
			return false
		}
		m.ticks++
		return true
	})
}

// waits returns how many bytes of messages and proposals wait.
func (b *mailbox) waits() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.bytes)
}

// message adds a raft message and reports whether there was room.
func (b *mailbox) message(in inbound, size int) bool {
	return b.put(func(m *mail) bool {
		if len(m.messages) == maxMailMessages || b.bytes+size > b.most {
			return false
		}
		b.bytes += size
		m.messages = append(m.messages, in)
		return true
	})
}

// propose adds a proposal and reports whether there was room.
func (b *mailbox) propose(p proposal) bool {
	return b.put(func(m *mail) bool {
		if len(m.proposals) == maxMailRequests || b.bytes+len(p.p.Data) > b.most {
			return false
		}
		b.bytes += len(p.p.Data)
		m.proposals = append(m.proposals, p)
		return true
	})
}

// read adds a read and reports whether there was room.
func (b *mailbox) read(c *call) bool {
	return b.put(func(m *mail) bool {
		if len(m.reads) == maxMailRequests {
			return false
		}
		m.reads = append(m.reads, c)
		return true
	})
}

// saved tells that what the replica had appended is durable.
func (b *mailbox) saved(rs ...*replica) {
	b.put(func(m *mail) bool { m.saved = append(m.saved, rs...); return true })
}

// applied tells that the replica's state machine has applied more. The replica
// stands in the lane once, however often it is told.
func (b *mailbox) applied(r *replica) {
	if r.appliedPosted.Swap(true) {
		return
	}
	b.put(func(m *mail) bool { m.applied = append(m.applied, r); return true })
}

// control has fn run by the worker, unless it has stopped.
func (b *mailbox) control(fn func()) bool {
	return b.put(func(m *mail) bool { m.controls = append(m.controls, fn); return true })
}

// close asks the worker to return once it has handled what is there.
func (b *mailbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mail.closed = true
	b.mu.Unlock()
	b.signal()
}

// take swaps what is there for old, whose slices are used again.
func (b *mailbox) take(old mail) mail {
	old.reset()
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mail
	old.closed = m.closed
	b.mail = old
	b.bytes = 0
	return m
}

// reset empties m and keeps its memory for the next round.
func (m *mail) reset() {
	clear(m.messages)
	clear(m.proposals)
	clear(m.reads)
	clear(m.saved)
	clear(m.applied)
	clear(m.controls)
	*m = mail{
		messages: m.messages[:0], proposals: m.proposals[:0], reads: m.reads[:0],
		saved: m.saved[:0], applied: m.applied[:0], controls: m.controls[:0],
	}
}
