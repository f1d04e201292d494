package badgerdb

import (
	"bytes"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"
)

// A tableIndex is the index of a table which was compared with its checksum. Badger does that
// once, when it opens the table, and reads the index from the mapped file each time: a page of
// it that the system has dropped comes from the disk again, as it is there.
type tableIndex struct {
	raw    []byte
	index  *fb.TableIndex
	filter y.Filter // empty: there is none
	blocks int
	used   atomic.Bool // since the cache looked for something to drop
}

// readIndex reads the index of a table: into memory of its own, to be kept, or in its place, to
// be used at once.
func readIndex(t *table.Table, keep bool) (*tableIndex, error) {
	mapped, sum := mappedIndex(t)
	if len(mapped) == 0 {
		return nil, errTableIndex
	}
	if keep {
		mapped = bytes.Clone(mapped)
	}
	x := &tableIndex{raw: mapped}
	want := new(pb.Checksum)
	if proto.Unmarshal(sum, want) != nil || y.VerifyChecksum(x.raw, want) != nil {
		return nil, errTableIndex
	}
	x.index = fb.GetRootAsTableIndex(x.raw, 0)
	x.filter = x.index.BloomFilterBytes()
	if x.blocks = x.index.OffsetsLength(); x.blocks == 0 {
		return nil, errTableIndex
	}
	return x, nil
}

// mappedIndex returns the index of a table as it is in its file, with what its checksum is
// encoded as, or nothing. A file ends with the index and its length, and the checksum and its
// length.
func mappedIndex(t *table.Table) (index, sum []byte) {
	rest := t.Data[:min(int64(len(t.Data)), t.Size())]
	cut := func() (part []byte) {
		if len(rest) < 4 {
			return nil
		}
		n := int64(y.BytesToU32(rest[len(rest)-4:]))
		rest = rest[:len(rest)-4]
		if n > int64(len(rest)) {
			return nil
		}
		part, rest = rest[int64(len(rest))-n:], rest[:int64(len(rest))-n]
		return part
	}
	sum = cut()
	if len(sum) == 0 {
		return nil, nil
	}
	return cut(), sum
}

// isMapped reports whether Badger sees the same index.
func (x *tableIndex) isMapped(t *table.Table) bool {
	mapped, _ := mappedIndex(t)
	return bytes.Equal(mapped, x.raw)
}

// mayHave reports whether a key of that hash may be in the table.
func (x *tableIndex) mayHave(hash uint32) bool {
	return len(x.filter) == 0 || x.filter.MayContain(hash)
}

// first returns the first key of a block, or nil beyond the last one.
func (x *tableIndex) first(block int) []byte {
	var at fb.BlockOffset
	if block >= x.blocks || !x.index.Offsets(&at, block) {
		return nil
	}
	return at.KeyBytes()
}

// blockOf returns the block in which a key is, if it is in the table.
func (x *tableIndex) blockOf(key []byte) int {
	var at fb.BlockOffset
	after := sort.Search(x.blocks, func(i int) bool {
		return x.index.Offsets(&at, i) && y.CompareKeys(at.KeyBytes(), key) > 0
	})
	return max(after-1, 0)
}

// An indexCache keeps indexes of tables, up to so many bytes of them. When it is full, others
// are compared with their checksums each time that they are used: to copy each one would make
// more garbage than there are answers.
type indexCache struct {
	limit  int64
	missed atomic.Uint64

	mu   sync.RWMutex
	all  map[uint64]*tableIndex // by table; those of tables that are gone are dropped in time
	size int64                  // of all
}

// keepEach is how many times something is missed in a full cache until it is kept in place of
// something that is not used.
const keepEach = 32

func newIndexCache(limit int64) *indexCache {
	return &indexCache{limit: limit, all: make(map[uint64]*tableIndex)}
}

// of returns the index of a table, to be used as long as the caller holds the table.
func (c *indexCache) of(t *table.Table) (*tableIndex, error) {
	c.mu.RLock()
	x, room := c.all[t.ID()], c.size+int64(t.IndexSize()) <= c.limit
	c.mu.RUnlock()
	if x != nil {
		if !x.used.Load() {
			x.used.Store(true)
		}
		return x, nil
	}
	keep := room || c.missed.Add(1)%keepEach == 0
	x, err := readIndex(t, keep)
	if err == nil && keep {
		c.add(t.ID(), x)
	}
	return x, err
}

// bytes returns how much is kept.
func (c *indexCache) bytes() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.size
}

// add keeps an index, and drops others for it that were not used of late.
func (c *indexCache) add(id uint64, x *tableIndex) {
	n := int64(len(x.raw))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[id] != nil || n > c.limit {
		return
	}
	for range 2 { // in the second round none is used
		for old, was := range c.all {
			if c.size+n <= c.limit {
				break
			}
			if !was.used.Swap(false) {
				delete(c.all, old)
				c.size -= int64(len(was.raw))
			}
		}
	}
	c.all[id] = x
	c.size += n
}

// keyOf is a key with a version, as in a table: the newest one of a key comes first.
func keyOf(key []byte, version uint64) []byte { return y.KeyWithTs(key, version) }

// newestOf comes before all that a key has in a table, and oldestOf after it.
func newestOf(key []byte) []byte { return keyOf(key, math.MaxUint64) }
func oldestOf(key []byte) []byte { return keyOf(key, 0) }
