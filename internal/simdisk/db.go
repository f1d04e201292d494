package simdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/mutant"
)

// OpenDB opens the database in a directory, or makes it. It is a [kv.Opener], with
// the limits of Badger. What it shows is durable.
func (d *Disk) OpenDB(o badgerdb.Options) (kv.DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	in, name, err := d.place("mkdir", o.Dir)
	if err != nil {
		return nil, err
	}
	n := in.seen[name]
	switch {
	case n == nil || n.dir != nil && len(n.dir.seen) == 0:
		n = &node{base: &database{version: 1}} // as Badger's begin, see badgerdb
		in.change(rename{to: name, node: n})
	case n.base == nil:
		return nil, &fs.PathError{Op: "mkdir", Path: o.Dir, Err: fs.ErrExist}
	case n.base.opened:
		return nil, fmt.Errorf("simdisk: open %s: %w", o.Dir, badgerdb.ErrLocked)
	case n.base.damage != "":
		return nil, fmt.Errorf("simdisk: open %s: %w: %s",
			o.Dir, badgerdb.ErrDamaged, n.base.damage)
	}
	n.base.open(d)
	h := &handle{d: d, start: d.start, dir: o.Dir, base: n.base, memTable: o.MemTableSize}
	if h.memTable == 0 {
		h.memTable = badgerdb.DefaultMemTableSize
	}
	return h, nil
}

// handle is an open database.
type handle struct {
	d        *Disk
	start    int
	dir      string
	base     *database
	memTable int64

	commitMu sync.Mutex // held for the whole of a commit
	failed   error      // as in badgerdb.DB; under the disk's lock
}

var _ kv.DB = (*handle)(nil)

func (h *handle) usable() error {
	switch {
	case h.d.start != h.start:
		return ErrCrashed
	case !h.base.opened:
		return ErrClosed
	default:
		return nil
	}
}

// Commit implements [kv.DB].
func (h *handle) Commit(fn func(kv.Writer) error) error {
	if h.d.Until != nil {
		h.d.Until(h.idle)
	}
	h.commitMu.Lock()
	defer h.commitMu.Unlock()
	if err := h.err(); err != nil {
		return err
	}
	t := &transaction{bytes: h.MaxTxnBytes(), count: h.MaxTxnCount()}
	if err := fn(t); err != nil {
		return err
	}
	if len(t.pairs) == 0 {
		return nil
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.write(t)
}

// idle reports whether nobody commits.
func (h *handle) idle() bool {
	if !h.commitMu.TryLock() {
		return false
	}
	h.commitMu.Unlock()
	return true
}

// err returns what keeps the database from being written to.
func (h *handle) err() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.failed == nil {
		if err := h.usable(); err != nil {
			h.failed = fmt.Errorf("simdisk: commit: %w: %w", badgerdb.ErrFailed, err)
		}
	}
	return h.failed
}

// write makes a transaction durable, and then visible.
func (h *handle) write(t *transaction) error {
	if mutant.On(mutant.SkipSync) {
		h.base.apply(t.pairs, h.d, false)
		return nil
	}
	h.base.written = t.pairs
	defer func() {
		if h.failed == nil && h.base.written != nil && h.d.start == h.start {
			h.failed = errors.New("simdisk: a commit has not returned") // and nobody waits
		}
	}()
	if err := h.d.sync(h.start, "commit", h.dir); err != nil {
		if h.d.start == h.start {
			h.base.doubt = true
		}
		h.failed = fmt.Errorf("simdisk: commit: %w: %w", badgerdb.ErrFailed, err)
		return h.failed
	}
	h.base.written = nil
	h.base.apply(t.pairs, h.d, true)
	return nil
}

// MaxTxnBytes implements [kv.DB].
func (h *handle) MaxTxnBytes() int64 { return 15*h.memTable/100 - 128 }

// MaxTxnCount implements [kv.DB].
func (h *handle) MaxTxnCount() int64 { return 15*h.memTable/100/96 - 2 }

// MaxValueBytes implements [kv.DB].
func (h *handle) MaxValueBytes() int64 { return min(1<<20, 15*h.memTable/100) - 1 }

// TableBytes implements [kv.DB].
func (h *handle) TableBytes() int64 {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.base.bytes
}

// OpenSpace implements [kv.DB].
func (h *handle) OpenSpace() int64 { return h.memTable }

// Reserve implements [kv.DB].
func (h *handle) Reserve() int64 { return 2 * h.memTable }

// Close implements [kv.DB]. What a failed commit has left is found out by the next
// opening.
func (h *handle) Close() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.usable(); err != nil {
		return err
	}
	h.base.opened = false
	h.base.fresh = 0
	return nil
}

// transaction collects what is written.
type transaction struct {
	pairs        []pair
	bytes, count int64 // that may still come
}

// pair is a key and its value; nil deletes the key.
type pair struct{ key, value []byte }

// Set implements [kv.Writer].
func (t *transaction) Set(key, value []byte) error {
	return t.add(pair{slices.Clone(key), append([]byte{}, value...)})
}

// Delete implements [kv.Writer].
func (t *transaction) Delete(key []byte) error { return t.add(pair{key: slices.Clone(key)}) }

func (t *transaction) add(p pair) error {
	t.bytes -= int64(len(p.key)+len(p.value)) + badgerdb.EntryOverhead
	t.count--
	if t.bytes < 0 || t.count < 0 {
		return kv.ErrTooBig
	}
	t.pairs = append(t.pairs, p)
	return nil
}
