package storage

import (
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"
)

// entryCharge is what an entry in memory counts beside its data: the message, its
// numbers and the pointer to it.
const entryCharge = 144

// cache bounds the memory for recent entries of all logs together. It is a list
// of chunks, the oldest first; each chunk is what one record put into one log.
// When over the budget it drops the oldest chunk, whoever has it, so a group
// that falls silent gives its memory to those that do not.
//
// Only the committer changes it. The chunks of a log are under that log's lock;
// they are in the order of the list, and together always reach to the log's last
// entry.
type cache struct {
	budget int64
	used   atomic.Int64
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
	ch := &chunk{log: l, entries: entries, bytes: chargeFor(entries), older: c.newest}
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
	for c.used.Load() > c.budget && c.oldest != nil {
		ch := c.oldest
		l := ch.log
		l.mu.Lock()
		l.chunks[0] = nil
		l.chunks = l.chunks[1:]
		if len(l.chunks) == 0 {
			l.chunks = nil // let go of the array
		}
		l.mu.Unlock()
		c.remove(ch)
	}
}
