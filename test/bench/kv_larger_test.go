//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/internal/device"
)

// What a node of [BenchmarkKVLarger] may keep in memory: the budget is that of its caches, and
// of the write buffers of both databases, of which each may have five. All are the defaults
// but for the cache of entries, which is a quarter.
const (
	memTableSize = 16 << 20
	blockCache   = 16 << 20
	indexCache   = 8 << 20
	entryCache   = 16 << 20
	budget       = 2*5*memTableSize + blockCache + indexCache + entryCache

	// collectorLimit is what the daemon has.
	collectorLimit = 1 << 30
)

const (
	largerGroups  = 4
	largerClients = 16
	largerValue   = 4 << 10
)

// BenchmarkKVLarger measures a key-value store with more data than its node may keep in
// memory: 2 GiB in values of 4 KiB, in 4 groups of one node, whose keys are got, overwritten
// and listed at random, in the process of the node. What three members cost
// beside that, [BenchmarkKV] has. RssAnon-MiB is the most that the process has had
// of its own meanwhile; the pages of files that the kernel keeps for it are no part of that.
//
// The baseline is a Badger with the same options and the same data: keys are got from it
// directly, and what all clients put meanwhile is one transaction and one sync.
func BenchmarkKVLarger(b *testing.B) {
	l := newLarger(b)
	b.Run("op=fill", func(b *testing.B) {
		for b.Loop() {
			l.fillOnce(b)
		}
		b.ReportMetric(0, "ns/op") // the store is filled once, whatever b.N
		b.ReportMetric(float64(l.total())/l.filled.took.Seconds(), "ops/s")
		b.ReportMetric(l.filled.written/float64(l.total()), "written-B/op")
		l.report(b, l.filled.peak)
	})
	l.fillOnce(b)
	rest(b)
	for _, how := range []node.Consistency{node.Linearizable, node.Stale} {
		b.Run(fmt.Sprintf("op=get/how=%v", how), func(b *testing.B) {
			l.run(b, func(n uint64) error { return l.get(b.Context(), n, how) })
		})
	}
	b.Run("op=put", func(b *testing.B) {
		l.run(b, func(n uint64) error { return l.put(b.Context(), n) })
	})
	for _, only := range []bool{false, true} {
		b.Run(fmt.Sprintf("op=list/keys=%d/keys-only=%t", listed, only), func(b *testing.B) {
			l.run(b, func(n uint64) error { return l.list(b.Context(), n, only) })
		})
	}
	beside := sync.OnceValues(func() (*bare, error) { return newBare(b, l) })
	b.Run("op=get/beside=badger", func(b *testing.B) {
		bare, err := beside()
		if err != nil {
			b.Fatal(err)
		}
		versus(b, "gets",
			&side{turn: turns(func() error {
				return l.get(b.Context(), l.any(), node.Linearizable)
			})},
			&side{turn: turns(func() error { return bare.get(l.any()) })})
	})
	b.Run("op=put/beside=badger", func(b *testing.B) {
		bare, err := beside()
		if err != nil {
			b.Fatal(err)
		}
		versus(b, "puts",
			&side{turn: turns(func() error { return l.put(b.Context(), l.any()) })},
			&side{turn: func() (int, error) {
				return largerClients * eachTurn, together(largerClients, eachTurn,
					func(who []int) error { return bare.put(len(who)) })
			}})
	})
}

// A larger is a node in this process, with groups that have more data than it has memory.
type larger struct {
	kv   *kv.Client
	keys uint64 // in each group
	pool []byte // of which values are parts
	next atomic.Uint64

	once   sync.Once
	filled struct {
		took    time.Duration
		written float64
		peak    int64
	}
}

func newLarger(b *testing.B) *larger {
	b.Helper()
	data := 2 << 30
	if testing.Short() {
		data = 32 << 20
	}
	l := &larger{keys: uint64(data / largerValue / largerGroups), pool: noise(1 << 20)}
	if os.Getenv("GOMEMLIMIT") == "" { // which counts more for the daemon, too
		before := debug.SetMemoryLimit(collectorLimit)
		b.Cleanup(func() { debug.SetMemoryLimit(before) })
	}
	dir := b.TempDir()
	store, err := kv.OpenStore(kv.StoreOptions{
		Dir: filepath.Join(dir, "state"), MemTableSize: memTableSize,
		BlockCacheBytes: blockCache, IndexCacheBytes: indexCache,
	})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(errors.Join(err, store.Close()))
	}
	n, err := node.Open(b.Context(), node.Config{
		ID: 1, Dir: dir, Cluster: "bench", Listener: listener,
		Peers:        []node.Peer{{ID: 1, Addr: listener.Addr().String()}},
		Kinds:        map[string]group.Factory{kindKV: store.Factory()},
		MemTableSize: memTableSize, CacheBytes: entryCache,
	})
	if err != nil {
		b.Fatal(errors.Join(err, store.Close()))
	}
	b.Cleanup(func() {
		if err := errors.Join(n.Close(context.Background()), store.Close()); err != nil {
			b.Error(err)
		}
	})
	for g := range largerGroups {
		err := again(b.Context(), func() error {
			_, err := n.CreateGroup(b.Context(), node.Spec{
				ID: groupID(g), Kind: kindKV, Voters: []raftyard.NodeID{1},
			})
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	l.kv = kv.NewClient(n)
	return l
}

// total is how many keys there are.
func (l *larger) total() uint64 { return largerGroups * l.keys }

// any returns the number of a key, at random, but the same ones each time the benchmark is
// run. What was read before is not read again just because b.N has grown.
func (l *larger) any() uint64 {
	x := l.next.Add(1) * 0x9e3779b97f4a7c15 // mixed as in SplitMix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) % l.total()
}

// where returns the group of a key, and the key.
func (l *larger) where(n uint64) (raftyard.GroupID, []byte) {
	return groupID(int(n / l.keys)), largerKey(n % l.keys)
}

func largerKey(n uint64) []byte { return fmt.Appendf(nil, "key%08d", n) }

// value returns what does not compress beside that of other keys.
func (l *larger) value(n uint64) []byte {
	at := n * 4099 % uint64(len(l.pool)-largerValue)
	return l.pool[at : at+largerValue]
}

func (l *larger) fillOnce(b *testing.B) {
	b.Helper()
	l.once.Do(func() {
		dir := b.TempDir()
		from, err := device.Taken(dir)
		if err != nil {
			b.Fatal(err)
		}
		begin, memory := time.Now(), watchMemory()
		if err = l.fill(b.Context()); err != nil {
			b.Fatal(err)
		}
		l.filled.took, l.filled.peak = time.Since(begin), memory.end(b)
		to, err := device.Taken(dir)
		if err != nil {
			b.Fatal(err)
		}
		l.filled.written = float64(to - from)
	})
}

// fill puts all keys, as many in a transaction as it may have.
func (l *larger) fill(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(largerClients)
	for n := uint64(0); n < l.keys; n += kv.MaxTxnOps {
		for g := range largerGroups {
			all.Go(func() error {
				var t kv.Txn
				for at := n; at < min(n+kv.MaxTxnOps, l.keys); at++ {
					t.Then = append(t.Then, kv.Op{
						Kind: kv.OpPut, Key: largerKey(at), Value: l.value(at),
					})
				}
				_, err := l.kv.Txn(ctx, groupID(g), t)
				return err
			})
		}
	}
	return all.Wait()
}

// rest waits until what a fill has left to be merged is. That may take minutes, and so is left
// out of a short run.
func rest(b *testing.B) {
	b.Helper()
	if !testing.Short() {
		awaitCalm(b, 180*time.Second, func() bool { return false })
	}
}

// run measures operations on keys at random.
func (l *larger) run(b *testing.B, do func(n uint64) error) {
	b.Helper()
	memory := watchMemory()
	parallel(b, largerClients, func(int, uint64) error { return do(l.any()) })
	l.report(b, memory.end(b))
}

func (l *larger) report(b *testing.B, peak int64) {
	b.Helper()
	b.ReportMetric(float64(l.total()*largerValue)/budget, "data/budget")
	if peak > 0 {
		b.ReportMetric(float64(peak)/(1<<20), "RssAnon-MiB")
	}
}

func (l *larger) get(ctx context.Context, n uint64, how node.Consistency) error {
	g, key := l.where(n)
	value, err := l.kv.Get(ctx, g, key, how)
	if err == nil && len(value.Data) != largerValue {
		err = fmt.Errorf("key %s has %d bytes, want %d", key, len(value.Data), largerValue)
	}
	return err
}

func (l *larger) put(ctx context.Context, n uint64) error {
	g, key := l.where(n)
	_, _, err := l.kv.Put(ctx, g, key, l.value(n+1), kv.Cond{})
	return err
}

// listed is how many keys a list has.
const listed = 1000

// list lists keys that follow each other. With their values that takes several answers, each
// of up to 1 MiB.
func (l *larger) list(ctx context.Context, n uint64, keysOnly bool) error {
	first := n % l.keys % (l.keys - listed + 1)
	req := kv.ListRequest{
		Start: largerKey(first), KeysOnly: keysOnly, Consistency: node.Linearizable,
	}
	for got := 0; got < listed; {
		req.Limit = listed - got
		page, err := l.kv.List(ctx, groupID(int(n/l.keys)), req)
		if err != nil {
			return err
		}
		if len(page.Items) == 0 {
			return fmt.Errorf("%d keys from %s, want %d", got, largerKey(first), listed)
		}
		got += len(page.Items)
		req.Start = page.Next
	}
	return nil
}

// eachTurn is how many operations each client does in a turn.
const eachTurn = 50

// turns returns a turn in which all clients do an operation again and again.
func turns(do func() error) func() (int, error) {
	return func() (int, error) {
		var all errgroup.Group
		for range largerClients {
			all.Go(func() error {
				for range eachTurn {
					if err := do(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return largerClients * eachTurn, all.Wait()
	}
}

// A bare is a Badger with the options that the store has, without a log and state machines.
type bare struct {
	db *badgerdb.DB
	l  *larger
}

// newBare fills one, for as long as a benchmark goes on.
func newBare(b *testing.B, l *larger) (*bare, error) {
	b.Helper()
	db, err := badgerdb.Open(badgerdb.Options{
		Dir: b.TempDir(), Profile: badgerdb.State, MemTableSize: memTableSize,
		BlockCacheSize: blockCache, IndexCacheSize: indexCache,
	})
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	bare := &bare{db: db, l: l}
	const each = 256
	for n := uint64(0); n < l.total(); n += each {
		if err := bare.set(each, func(i uint64) uint64 { return n + i }); err != nil {
			return nil, err
		}
	}
	rest(b)
	return bare, nil
}

// set makes some keys durable together.
func (r *bare) set(keys uint64, which func(i uint64) uint64) error {
	return r.db.Commit(func(txn *badgerdb.Txn) error {
		for i := range keys {
			n := which(i)
			if err := txn.Set(bareKey(n), r.l.value(n)); err != nil {
				return err
			}
		}
		return nil
	})
}

func bareKey(n uint64) []byte { return fmt.Appendf(nil, "bare-key%08d", n) }

func (r *bare) put(keys int) error {
	return r.set(uint64(keys), func(uint64) uint64 { return r.l.any() })
}

func (r *bare) get(n uint64) error {
	return r.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(bareKey(n))
		if err != nil {
			return err
		}
		value, err := item.ValueCopy(nil)
		if err == nil && len(value) != largerValue {
			err = fmt.Errorf("a value of %d bytes, want %d", len(value), largerValue)
		}
		return err
	})
}

// A memoryWatch looks at how much memory this process has of its own.
type memoryWatch struct {
	quit chan struct{} // closed to ask run to return
	done chan error    // holds one, when run has returned
	most int64         // bytes; zero: nobody tells
}

func watchMemory() *memoryWatch {
	w := &memoryWatch{quit: make(chan struct{}), done: make(chan error, 1)}
	go func() { w.done <- w.run() }()
	return w
}

func (w *memoryWatch) run() error {
	clock := time.NewTicker(2 * sampleEvery)
	defer clock.Stop()
	for {
		own, err := anonymous()
		if err != nil {
			return err
		}
		w.most = max(w.most, own)
		select {
		case <-clock.C:
		case <-w.quit:
			return nil
		}
	}
}

// end ends the watch, and returns the most that there was.
func (w *memoryWatch) end(b *testing.B) int64 {
	b.Helper()
	close(w.quit)
	if err := <-w.done; err != nil {
		b.Fatal(err)
	}
	return w.most
}
