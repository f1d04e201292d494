package simdisk

import (
	"slices"

	"github.com/raftyard/raftyard/internal/kv"
)

// view is the database at one commit.
type view struct {
	h       *handle
	version uint64
	done    bool
}

var _ kv.Snapshot = (*view)(nil)

// Snapshot implements [kv.DB].
func (h *handle) Snapshot() kv.Snapshot {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	v := &view{h: h, version: h.base.version, done: h.usable() != nil}
	if !v.done {
		h.base.views = append(h.base.views, v.version)
	}
	return v
}

func (v *view) usable() error {
	if err := v.h.usable(); err != nil {
		return err
	}
	if v.done {
		return ErrClosed
	}
	return nil
}

// at returns the value that a version shows; nil data is none.
func (c *cell) at(version uint64) value {
	for _, v := range slices.Backward(c.values) {
		if v.version <= version {
			return v
		}
	}
	return value{}
}

// Get implements [kv.Snapshot].
func (v *view) Get(key []byte) ([]byte, error) {
	v.h.d.mu.Lock()
	defer v.h.d.mu.Unlock()
	if err := v.usable(); err != nil {
		return nil, err
	}
	i, ok := v.h.base.find(key)
	if !ok {
		return nil, kv.ErrNotFound
	}
	data := v.h.base.cells[i].at(v.version).data
	if data == nil {
		return nil, kv.ErrNotFound
	}
	return slices.Clone(data), nil
}

// Scan implements [kv.Snapshot]. The disk is not locked while fn runs.
func (v *view) Scan(fn func(key, value []byte, version uint64) error) error {
	type found struct {
		key []byte
		value
	}
	v.h.d.mu.Lock()
	if err := v.usable(); err != nil {
		v.h.d.mu.Unlock()
		return err
	}
	all := make([]found, 0, len(v.h.base.cells))
	for _, c := range v.h.base.cells {
		if got := c.at(v.version); got.data != nil {
			all = append(all, found{c.key, got})
		}
	}
	v.h.d.mu.Unlock()
	for _, f := range all {
		if err := fn(f.key, f.data, f.version); err != nil {
			return err
		}
	}
	return nil
}

// Discard implements [kv.Snapshot].
func (v *view) Discard() {
	v.h.d.mu.Lock()
	defer v.h.d.mu.Unlock()
	if v.usable() != nil {
		return
	}
	v.done = true
	base := v.h.base
	if i := slices.Index(base.views, v.version); i >= 0 {
		base.views = slices.Delete(base.views, i, i+1)
	}
	if len(base.views) == 0 && base.buried > 0 {
		base.settle()
	}
}
