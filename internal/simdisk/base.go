package simdisk

import (
	"bytes"
	"slices"
)

// database is what a database has on disk. What its cells show is durable, but for
// the newest fresh commits. Beside that there may be one commit that is written and
// not durable; it is not visible yet.
type database struct {
	opened bool
	damage string // not empty: it cannot be opened

	cells   []*cell  // by key
	version uint64   // of the newest commit
	bytes   int64    // of all keys and values
	views   []uint64 // versions that are still shown
	buried  int      // deletions that are kept for them

	history []commit // the newest commits, the newest last
	fresh   int      // how many of them are not durable: none, unless syncs are skipped

	written []pair // a commit that is not durable yet
	doubt   bool   // its sync has failed
}

// cell is a key with its values: the newest, and those that views still show.
type cell struct {
	key    []byte
	values []value // the newest last
}

// value is what a commit made of a key. It is never changed. Nil data: deleted.
type value struct {
	version uint64
	data    []byte
}

// commit is how to undo a commit.
type commit struct {
	order  uint64 // among all commits of the disk
	before []undo
}

type undo struct {
	key   []byte
	value value // nil data: there was none
}

// keepCommits is how many commits can be undone.
const keepCommits = 64

func (b *database) order() uint64 { return b.history[len(b.history)-1].order }

// find returns where the key is, or would be.
func (b *database) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(b.cells, key, func(c *cell, key []byte) int {
		return bytes.Compare(c.key, key)
	})
}

// apply makes a commit visible.
func (b *database) apply(pairs []pair, d *Disk, durable bool) {
	b.version++
	d.order++
	d.stats.Commits++
	c := commit{order: d.order, before: make([]undo, 0, len(pairs))}
	for _, p := range pairs {
		c.before = append(c.before, undo{p.key, b.newest(p.key)})
		b.put(p.key, value{b.version, p.value})
	}
	if durable {
		b.fresh = 0 // the log is synced as a whole
	} else {
		b.fresh++
	}
	if len(b.history) == keepCommits {
		copy(b.history, b.history[1:])
		b.history = b.history[:keepCommits-1]
		b.fresh = min(b.fresh, keepCommits-1) // written back, as time passes
	}
	b.history = append(b.history, c)
}

// newest returns the newest value of a key.
func (b *database) newest(key []byte) value {
	if i, ok := b.find(key); ok {
		return b.cells[i].newest()
	}
	return value{}
}

func (c *cell) newest() value { return c.values[len(c.values)-1] }

// put gives a key a value, and forgets those that no view shows.
func (b *database) put(key []byte, v value) {
	i, ok := b.find(key)
	if !ok {
		if v.data == nil {
			return
		}
		b.cells = slices.Insert(b.cells, i, &cell{key: key})
	}
	c := b.cells[i]
	if n := len(c.values); n > 0 {
		if old := c.values[n-1]; old.data != nil {
			b.bytes -= int64(len(key) + len(old.data))
		}
	}
	c.forget(b.views)
	switch {
	case v.data != nil:
		b.bytes += int64(len(key) + len(v.data))
	case len(c.values) == 0:
		b.cells = slices.Delete(b.cells, i, i+1)
		return
	default:
		b.buried++
	}
	c.values = append(c.values, v)
}

// forget drops the values that no view shows.
func (c *cell) forget(views []uint64) {
	if len(views) == 0 {
		c.values = c.values[:0]
		return
	}
	oldest := slices.Min(views)
	n := 0
	for n+1 < len(c.values) && c.values[n+1].version <= oldest {
		n++
	}
	c.values = slices.Delete(c.values, 0, n)
}

// undo takes the newest commit back. There are no views.
func (b *database) undo() {
	last := len(b.history) - 1
	for _, u := range slices.Backward(b.history[last].before) {
		b.put(u.key, u.value)
	}
	b.history = b.history[:last]
	b.fresh = max(b.fresh-1, 0)
	b.version--
}

// crash decides what a power failure leaves of what is not durable.
func (b *database) crash(d *Disk) {
	b.opened = false
	b.settle()
	lost := 0
	if b.fresh > 0 {
		lost = d.below(b.fresh + 1)
	}
	for range lost {
		b.undo()
	}
	d.stats.Lost += lost
	b.fresh = 0
	if b.written != nil {
		b.resolve(d, lost == 0 && d.coin())
	}
}

// open makes all durable that there is, as Badger does when it opens its logs.
func (b *database) open(d *Disk) {
	b.opened = true
	b.settle()
	b.fresh = 0
	if b.written != nil {
		b.resolve(d, !b.doubt || d.coin())
	}
}

// resolve decides on the commit that was written.
func (b *database) resolve(d *Disk, keep bool) {
	if keep {
		d.stats.Kept++
		b.apply(b.written, d, true)
	} else {
		d.stats.Lost++
	}
	b.written, b.doubt = nil, false
}

// settle ends all views.
func (b *database) settle() {
	b.views, b.buried = b.views[:0], 0
	b.cells = slices.DeleteFunc(b.cells, func(c *cell) bool {
		c.values = append(c.values[:0], c.newest())
		return c.newest().data == nil
	})
}
