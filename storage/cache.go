package storage

import (
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"
)

// entryCharge is what an entry in memory counts beside its data: the message, its
// numbers and the pointer to it.
const entryCharge = 144

// cache bounds the memory for recent entries of all logs together. It is a list
// of chunks, the oldest first; each chunk is what one record put into one log.
// When over the budget it drops the oldest chunk, whoever has it, so a group
// that falls silent gives its memory to those that do not; it may also do so itself, see
// [Log.Rest].
//
// Only the committer adds to it and cuts chunks short; they are dropped by whoever holds
// the lock of their log, under which a log's own chunks are. Those are in the order of the
// list, and together always reach to the log's last entry, unless there are none.
type cache struct {
	budget int64
	used   atomic.Int64

	mu     sync.Mutex // of the list alone, and taken after that of a log
	oldest *chunk
	newest *chunk
}

type chunk struct {
	log     *Log
	entries []*raftpb.Entry // shared with what the caller appended
	bytes   int64

	older, newer *chunk
}

func chargeFor(entries []*raftpb.Entry) int64 {
	n := int64(len(entries)) * entryCharge
	for _, e := range entries {
		n += int64(len(e.GetData()))
	}
	return n
}

// add puts entries at the end of the list and returns their chunk.
func (c *cache) add(l *Log, entries []*raftpb.Entry) *chunk {
	ch := &chunk{log: l, entries: entries, bytes: chargeFor(entries)}
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.older = c.newest
	if c.newest != nil {
		c.newest.newer = ch
	} else {
		c.oldest = ch
	}
	c.newest = ch
	c.used.Add(ch.bytes)
	return ch
}

// remove takes a chunk out of the list.
func (c *cache) remove(ch *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.older != nil {
		ch.older.newer = ch.newer
	} else {
		c.oldest = ch.newer
	}
	if ch.newer != nil {
		ch.newer.older = ch.older
	} else {
		c.newest = ch.older
	}
	ch.older, ch.newer = nil, nil
	c.used.Add(-ch.bytes)
}

// shorten keeps the first n entries of a chunk.
func (c *cache) shorten(ch *chunk, n int) {
	gone := chargeFor(ch.entries[n:])
	ch.entries = ch.entries[:n:n]
	ch.bytes -= gone
	c.used.Add(-gone)
}

// evict drops the oldest chunks until the budget is kept. The cost is that of
// what is dropped, not of how many logs there are.
func (c *cache) evict() {
	for c.used.Load() > c.budget {
		ch := c.first()
		if ch == nil {
			return
		}
		ch.log.evict(ch)
	}
}

// first returns the oldest chunk, or nil.
func (c *cache) first() *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.oldest
}

// evict drops a chunk of the log if it is the oldest: the log may have dropped it meanwhile.
func (l *Log) evict(ch *chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.chunks) == 0 || l.chunks[0] != ch {
		return
	}
	l.store.cache.remove(ch)
	l.chunks[0] = nil
	l.chunks = l.chunks[1:]
	if len(l.chunks) == 0 {
		l.chunks = nil // let go of the array
	}
}

// Rest gives up memory that is of use only while the log is written to: the entries that
// were appended lately are read from the disk from now on. What the log says does not
// change. It may be called from any goroutine.
func (l *Log) Rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ch := range l.chunks {
		l.store.cache.remove(ch)
	}
	l.chunks = nil
	if cap(l.refs) > len(l.refs) {
		l.refs = append(make([]ref, 0, len(l.refs)), l.refs...)
	}
}
