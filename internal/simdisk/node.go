package simdisk

import (
	"maps"
	"slices"
)

// node is what a name stands for: a directory, a file or a database. The directory
// of a database is not one of ours: nobody looks into it.
type node struct {
	dir  *dir
	file *content
	base *database
}

// dir is a directory: its names as they are seen, as they are durable, and what
// makes the one of the other.
type dir struct {
	seen    map[string]*node
	durable map[string]*node
	changes []rename // not durable yet, the oldest first
	first   uint64   // number of changes[0]
}

// rename takes a name away from a node, or gives one, or both at once. An empty name
// is none.
type rename struct {
	from, to string
	node     *node
}

func (r rename) apply(names map[string]*node) {
	if r.from != "" {
		delete(names, r.from)
	}
	if r.to != "" {
		names[r.to] = r.node
	}
}

func newDir() *node {
	return &node{dir: &dir{seen: make(map[string]*node), durable: make(map[string]*node)}}
}

func (n *dir) change(r rename) {
	r.apply(n.seen)
	n.changes = append(n.changes, r)
}

// isDurable reports whether a name stays as it is whatever happens.
func (n *dir) isDurable(name string) bool {
	return !slices.ContainsFunc(n.changes, func(r rename) bool {
		return r.from == name || r.to == name
	})
}

// noted returns the number after the newest change.
func (n *dir) noted() uint64 { return n.first + uint64(len(n.changes)) }

// settle makes the changes before the given number durable.
func (n *dir) settle(end uint64) {
	for ; n.first < end; n.first++ {
		n.changes[0].apply(n.durable)
		n.changes = n.changes[1:]
	}
}

// crash decides by the dice which changes are durable: all, none, or one by one. One
// that is lost takes along what was done to the same file after it: no file system
// gives one two names.
func (n *dir) crash(d *Disk) {
	if len(n.changes) > 0 {
		mode := d.below(3)
		var lost []*node
		for _, c := range n.changes {
			keep := mode == 0 || mode == 1 && d.coin()
			if keep && !slices.Contains(lost, c.node) {
				c.apply(n.durable)
				continue
			}
			d.stats.Names++
			lost = append(lost, c.node)
		}
	}
	n.first, n.changes = n.noted(), nil
	n.seen = maps.Clone(n.durable)
	for _, name := range n.sorted() {
		n.seen[name].crash(d)
	}
}

// sorted returns the names as they are seen, in order.
func (n *dir) sorted() []string { return slices.Sorted(maps.Keys(n.seen)) }

// crash makes a node what it is after a power failure, and all below it.
func (n *node) crash(d *Disk) {
	switch {
	case n.file != nil:
		n.file.crash(d)
	case n.base != nil:
		n.base.crash(d)
	default:
		n.dir.crash(d)
	}
}

func (n *node) walk(fn func(*database)) {
	switch {
	case n.base != nil:
		fn(n.base)
	case n.dir != nil:
		for _, name := range n.dir.sorted() {
			n.dir.seen[name].walk(fn)
		}
	}
}

// content is what is in a file: as it is seen, as it is durable, and the writes
// that make the one of the other.
type content struct {
	seen    []byte
	durable []byte
	writes  []write // not durable yet, the oldest first
	first   uint64  // number of writes[0]
}

// write puts data at a place, or empties the file.
type write struct {
	at    int64
	data  []byte
	empty bool
}

func (w write) apply(b []byte) []byte {
	if w.empty {
		return b[:0]
	}
	if end := int(w.at) + len(w.data); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[w.at:], w.data)
	return b
}

func (c *content) write(w write) {
	c.seen = w.apply(c.seen)
	c.writes = append(c.writes, w)
}

// noted returns the number after the newest write.
func (c *content) noted() uint64 { return c.first + uint64(len(c.writes)) }

// settle makes the writes before the given number durable.
func (c *content) settle(end uint64) {
	for ; c.first < end; c.first++ {
		c.durable = c.writes[0].apply(c.durable)
		c.writes = c.writes[1:]
	}
}

// lose decides by the dice how many of the writes before the given number are
// durable. The others never will be.
func (c *content) lose(d *Disk, end uint64) {
	open := int(end) - int(c.first)
	if open <= 0 {
		return
	}
	keep := 0
	switch d.below(3) {
	case 0:
		keep = open
	case 1:
		keep = d.below(open + 1)
	}
	c.settle(c.first + uint64(keep))
	if lost := open - keep; lost > 0 {
		if w := c.writes[0]; len(w.data) > 1 && d.coin() {
			w.data = w.data[:1+d.below(len(w.data)-1)]
			c.durable = w.apply(c.durable)
			d.stats.Torn++
		}
		d.stats.Writes += lost
		c.writes, c.first = c.writes[lost:], end
	}
}

func (c *content) crash(d *Disk) {
	c.lose(d, c.noted())
	c.seen = slices.Clone(c.durable)
}
