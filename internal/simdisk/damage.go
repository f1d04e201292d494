package simdisk

import (
	"errors"
	"fmt"
	"slices"
)

// errNothing: there is nothing to damage there.
var errNothing = errors.New("there is nothing to damage")

// CorruptFile turns one bit of a file around, of what is durable and of what is
// seen.
func (d *Disk) CorruptFile(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("corrupt", path)
	if err != nil {
		return err
	}
	if n.file == nil || len(n.file.durable) == 0 {
		return fmt.Errorf("simdisk: corrupt %s: %w", path, errNothing)
	}
	bit := d.below(8 * len(n.file.durable))
	n.file.durable[bit/8] ^= 1 << (bit % 8)
	if bit/8 < len(n.file.seen) {
		n.file.seen[bit/8] ^= 1 << (bit % 8)
	}
	d.stats.Corrupted++
	return nil
}

// CorruptRecord turns one bit around in the value of one of the keys that choose
// returns true for, and returns its key. The database may be open.
func (d *Disk) CorruptRecord(dir string, choose func(key []byte) bool) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, i, err := d.record(dir, choose)
	if err != nil {
		return nil, err
	}
	v := &b.cells[i].values[len(b.cells[i].values)-1]
	v.data = slices.Clone(v.data)
	bit := d.below(8 * len(v.data))
	v.data[bit/8] ^= 1 << (bit % 8)
	return slices.Clone(b.cells[i].key), nil
}

// LoseRecord removes one of the keys that choose returns true for, and nothing
// else, and returns it: a write that went elsewhere. The database must not be open.
func (d *Disk) LoseRecord(dir string, choose func(key []byte) bool) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, i, err := d.record(dir, choose)
	if err != nil {
		return nil, err
	}
	key := b.cells[i].key
	b.put(key, value{})
	return slices.Clone(key), nil
}

// DamageDB makes a database one that cannot be opened, as Badger's files are when
// one of their checksums does not hold.
func (d *Disk) DamageDB(dir, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("damage", dir)
	if err != nil {
		return err
	}
	if n.base == nil {
		return fmt.Errorf("simdisk: damage %s: %w", dir, errNothing)
	}
	n.base.damage = text
	d.stats.Corrupted++
	return nil
}

// record chooses a cell of a database that has a value.
func (d *Disk) record(dir string, choose func(key []byte) bool) (*database, int, error) {
	n, err := d.find("corrupt", dir)
	if err != nil {
		return nil, 0, err
	}
	var candidates []int
	if n.base != nil {
		for i, c := range n.base.cells {
			if len(c.newest().data) > 0 && choose(c.key) {
				candidates = append(candidates, i)
			}
		}
	}
	if len(candidates) == 0 {
		return nil, 0, fmt.Errorf("simdisk: corrupt %s: %w", dir, errNothing)
	}
	d.stats.Corrupted++
	return n.base, candidates[d.below(len(candidates))], nil
}
